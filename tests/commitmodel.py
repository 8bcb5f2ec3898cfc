"""The commit protocol as transitions of one worker, and what a failure makes of those who are left.

One transition moves one worker; what it waits for in a collective is that others have come to some position,
and positions only grow. What has become of a worker's parameters is its *history*: steps, with their scale.

Where nobody can tell what lies between two transitions they are one: a step is computed (and the verdict
on the one before is plain) and its reduce entered; a reduce completes and the barrier is entered; a barrier
completes and the worker contributes to the all-reduce of the world. Between them it reports what it reports
either before both or after both, and lets others do no more than before both.
"""

from __future__ import annotations

import math
from enum import IntEnum
from functools import cache
from typing import Literal, NamedTuple

from holdfast.commit import Agreement, Standing, Tally, Verdict, agree, judge, merge

STEPS = 3
History = tuple[tuple[int, float], ...]
"""Steps that were applied, with the scale of each."""
Lack = Literal["barrier", "shadow", "verdict", "tally"]


class Trouble(NamedTuple):
    """What happens to one step, and the stage that shows it.

    None: no stage shows by itself that it is clipped or skipped, and every stage that it is void.
    """

    kind: Literal["plain", "clip", "skip", "void"] = "plain"
    stage: int | None = None
    step: int = 1

    def tally(self, step: int, attempt: int, stage: int) -> Tally:
        """Return what a stage finds out; a step that was void fits when it is computed again."""
        is_here = step == self.step and self.stage in (None, stage)
        if self.kind == "void":
            return Tally(squares={stage: 0.01}, overflows={stage: is_here and attempt == 0})
        whole = {"plain": 0.01, "clip": 4.0, "skip": math.inf}
        shared = {"plain": 0.01, "clip": 0.9, "skip": 1e308}
        square = (shared if self.stage is None else whole)[self.kind] if is_here else 0.01
        return Tally(squares={stage: square}, overflows={stage: False})

    def judge(self, tally: Tally) -> Verdict:
        """Judge with a limit; what is infinite only in the sum would be clipped by one before."""
        return judge(tally, max_norm=None if self.kind == "skip" else 1.0)


class Case(NamedTuple):
    """A job, and what happens to it."""

    work: tuple[tuple[bool, ...], ...]
    """Stage by stage, who has work."""
    staggered_from: int = 0
    """The step from which on updates are applied ahead of their verdict."""
    trouble: Trouble = Trouble()
    start: int = 0
    """The version that all begin with."""
    lacks: Lack | None = None
    """A part of the protocol that is left out, to see what it is good for."""

    @property
    def pp(self) -> int:
        """How many stages there are."""
        return len(self.work)

    def whole(self, step: int, attempt: int) -> Tally:
        """Return the tally of a step over all stages."""
        return merge(self.trouble.tally(step, attempt, stage) for stage in range(self.pp))

    @property
    def ideal(self) -> History:
        """What every worker's history is after a run without failures."""
        return _ideal(self.trouble, self.pp)

    def begin(self, stage: int, *, has_work: bool) -> At:
        """Return a worker that begins: at once, or after a failure with the tally that was agreed on."""
        notes = (Note(self.start - 1, 1, is_whole=True),) if self.start else ()
        calm = is_calm(self.ideal[: self.start])
        return At(stage, has_work, 0, self.start, self.ideal[: self.start], calm, notes=notes)


class Phase(IntEnum):
    """How far a worker is in a step."""

    COMPUTING = 0
    COMPUTED = 1
    REDUCING = 2
    AT_BARRIER = 3
    CONTRIBUTED = 4


class Note(NamedTuple):
    """A tally that a worker knows: of its stage alone, or whole."""

    step: int
    attempt: int
    is_whole: bool


class At(NamedTuple):
    """Where one worker is."""

    stage: int
    has_work: bool
    attempt: int
    """Grows when everybody begins a step again."""
    version: int
    history: History
    is_calm: bool
    """No verdict was bad so far: the next step may be computed before the verdict on this one."""
    phase: Phase = Phase.COMPUTING
    is_ahead: bool = False
    """The last update was applied, and its verdict is not known."""
    is_held: bool = False
    """Its own stage is bad: the update waits for its verdict, and the next step is computed as others do."""
    shadow: History | None = None
    is_prepared: bool = False
    """It holds the gradient of the step after its version, and its peers do."""
    notes: tuple[Note, ...] = ()

    @property
    def step(self) -> int:
        """What it computes or reduces."""
        return self.version + self.is_held

    @property
    def position(self) -> int:
        """How far the worker is altogether; every transition makes it larger."""
        return (self.attempt * 10 + self.step) * 10 + self.phase

    def note(self, step: int, attempt: int, *, is_whole: bool) -> tuple[Note, ...]:
        """Return the notes of the last two steps with a new one; one of an attempt before is replaced."""
        kept = tuple(note for note in self.notes if note.step == step - 1)
        return (*kept, Note(step, attempt, is_whole))


Scope = Literal["self", "stage", "working", "world"]


class Move(NamedTuple):
    """A transition: what the worker becomes once everybody in the scope has come to a position."""

    scope: Scope
    position: int
    after: At


def is_calm(history: History) -> bool:
    """Say whether every update was applied as it was."""
    return all(scale == 1.0 for _, scale in history)


@cache
def _ideal(trouble: Trouble, pp: int) -> History:
    tallies = [merge(trouble.tally(step, 1, stage) for stage in range(pp)) for step in range(STEPS)]
    return tuple((step, trouble.judge(tally).scale) for step, tally in enumerate(tallies))


# --- what a worker does -----------------------------------------------------------------------


def moves(case: Case, at: At) -> list[Move]:
    """Return what a worker can do next, and what it waits for."""
    if at.phase == Phase.COMPUTING and at.has_work and at.step < STEPS:
        return [Move("working", at.position, at._replace(phase=Phase.COMPUTED))]
    if at.phase <= Phase.COMPUTED:
        return _settle(case, at)
    if at.phase == Phase.REDUCING and case.lacks != "barrier":
        return [Move("stage", at.position, at._replace(phase=Phase.AT_BARRIER))]
    if at.phase <= Phase.AT_BARRIER:
        return [Move("stage", at.position, _prepare(case, at))]
    if at.is_calm and at.step >= case.staggered_from:
        return [Move("self", 0, _go_ahead(case, at))]
    return [Move("world", at.position, _conclude(case, at))]


def _settle(case: Case, at: At) -> list[Move]:
    """Take the verdict on the step before, if it is open, and go on to the reduce or begin again."""
    if not (at.is_ahead or at.is_held):
        return [Move("self", 0, _reduce(at))] if at.step < STEPS else []
    if case.lacks == "verdict" and at.step < STEPS:
        return [Move("self", 0, _reduce(at))]
    contributed = (at.attempt * 10 + at.step - 1) * 10 + Phase.CONTRIBUTED
    return [Move("world", contributed, _confirm(case, at))]


def _reduce(at: At) -> At:
    return at._replace(phase=Phase.REDUCING, is_ahead=False, is_held=False)


def _prepare(case: Case, at: At) -> At:
    own = case.trouble.tally(at.version, at.attempt, at.stage)
    return at._replace(
        phase=Phase.CONTRIBUTED,
        is_prepared=not any(own.overflows.values()),
        notes=at.note(at.version, at.attempt, is_whole=False),
    )


def _go_ahead(case: Case, at: At) -> At:
    own = case.trouble.judge(case.trouble.tally(at.version, at.attempt, at.stage))
    if not own.is_plain:
        return at._replace(phase=Phase.COMPUTING, is_held=True)
    shadow = None if case.lacks == "shadow" else at.history
    return _apply(at, 1.0)._replace(is_ahead=True, is_calm=at.is_calm, shadow=shadow)


def _apply(at: At, scale: float) -> At:
    history = (*at.history, (at.version, scale))
    return at._replace(
        phase=Phase.COMPUTING,
        version=at.version + 1,
        history=history,
        is_calm=is_calm(history),
        is_ahead=False,
        is_held=False,
        shadow=None,
        is_prepared=False,
    )


def _conclude(case: Case, at: At) -> At:
    """Do what the verdict says with the update that is prepared."""
    tally = case.whole(at.version, at.attempt)
    known = at._replace(notes=at.note(at.version, at.attempt, is_whole=True))
    verdict = case.trouble.judge(tally)
    return _void(known) if verdict.is_void else _apply(known, verdict.scale)


def _void(at: At) -> At:
    """Begin the step again; what was said of it holds no longer."""
    return at._replace(
        attempt=at.attempt + 1,
        phase=Phase.COMPUTING,
        is_held=False,
        is_prepared=False,
        shadow=None,
        notes=tuple(note for note in at.notes if note.step < at.version),
    )


def _confirm(case: Case, at: At) -> At:
    """Take the verdict on an update that was applied ahead, or held; what was computed since may be void."""
    if at.is_held:
        after = _conclude(case, at)
        return after._replace(attempt=at.attempt + 1)
    step = at.version - 1
    known = at._replace(is_ahead=False, notes=at.note(step, at.attempt, is_whole=True))
    verdict = case.trouble.judge(case.whole(step, at.attempt))
    if verdict.is_plain:
        return _reduce(known) if at.step < STEPS else known._replace(phase=Phase.COMPUTED)
    before = known._replace(version=step, history=at.shadow or ())
    if verdict.is_void:
        return _void(before)
    return _apply(before, verdict.scale)._replace(attempt=at.attempt + 1)


# --- what a failure makes of it ---------------------------------------------------------------


class Survivor(NamedTuple):
    """What is left of a worker after a failure: what it reports, and what it can become."""

    standing: Standing
    history: History
    is_calm: bool
    shadow: History | None = None
    is_ahead: bool = False


def survivor(case: Case, at: At) -> Survivor:
    """Return what a worker reports when everything in flight is lost."""
    tallies = {
        note.step: case.whole(note.step, note.attempt)
        if note.is_whole
        else case.trouble.tally(note.step, note.attempt, at.stage)
        for note in at.notes
    }
    standing = Standing(
        version=at.version, is_prepared=at.is_prepared, has_shadow=at.shadow is not None, tallies=tallies
    )
    return Survivor(standing, at.history, at.is_calm, at.shadow, at.is_ahead)


def recover(case: Case, one: Survivor, agreement: Agreement) -> tuple[History, bool] | None:
    """Return history and calm of a survivor that went to what was agreed, None if it cannot."""
    steps = agreement.version - one.standing.version
    if steps == 0 and not one.is_ahead:
        return one.history, one.is_calm
    if steps == -1:
        return None if one.shadow is None else (one.shadow, one.is_calm)
    # It holds the gradient of the step that it is prepared for, or of the one that it is ahead with.
    base = {0: one.shadow, 1: one.history if one.standing.is_prepared else None}.get(steps)
    verdict = case.trouble.judge(agreement.tally) if agreement.tally else None
    if base is None or verdict is None or verdict.is_void:
        return None
    return (*base, (agreement.version - 1, verdict.scale)), one.is_calm and verdict.is_plain


def find_wrong(case: Case, survivors: list[Survivor]) -> str | None:
    """Return what goes wrong when these are left, whoever reports first; None if all is well."""
    for each in (survivors, survivors[::-1]):
        agreement = agree({rank: one.standing for rank, one in enumerate(each)}, stages=case.pp)
        if agreement is None:
            return "nothing is agreed"
        found = {recover(case, one, agreement) for one in each}
        ideal = case.ideal[: agreement.version]
        if None in found:
            return f"not all can be at version {agreement.version}"
        if found != {(ideal, is_calm(ideal))}:
            return f"histories differ at version {agreement.version}"
    return None


def moved(case: Case, agreement: Agreement) -> Survivor:
    """Return a survivor that has gone to what was agreed, and remembers the tally."""
    version, tally = agreement.version, None if case.lacks == "tally" else agreement.tally
    standing = Standing(version=version, tallies={version - 1: tally} if tally else {})
    return Survivor(standing, case.ideal[:version], is_calm(case.ideal[:version]))
