"""What a failure cost: notes of finished steps and the moment of the kill in, lost seconds out.

Every worker appends a note per step; the clock is the machine's monotonic one, so notes of all processes of
a machine can be compared. A step belongs to a *group*: what made it (the number of replicas, or the
attempt), so that a step made without the victim can be told from one that it had still given its part to.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

WARM_STEPS = 10
"""Steps of a worker that are left out of the usual step time."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """One step of one worker."""

    worker: str
    step: int
    end_s: float
    group: int
    is_kept: bool
    """Whether the optimizer stepped; a discarded step has the number that it would have had."""

    def line(self) -> str:
        """Return the note as a line of the worker's file."""
        return f"{self.step} {self.end_s!r} {self.group} {int(self.is_kept)}\n"


@dataclass(frozen=True, kw_only=True)
class Pause:
    """What the kill of one worker cost."""

    name: str
    pause_s: float | None
    """Lost wall time until training is past where it was: kill (or the end of the step that the victim had
    already given its part to) to the end of the first step at or past the old position, minus the usual time
    of the steps that this is ahead. None if that never came."""
    first_step_s: float | None
    """The same to the first step that anybody finishes without the victim, wherever training then stands."""
    usual_step_s: float | None
    """None where nothing could run."""
    steps_lost: int
    """Steps that were finished or begun before the kill and had to be made again."""
    finished: bool
    remark: str
    rejoin_s: float | None = None
    """From the start of the victim's successor to the end of its first step with all others."""


def read_notes(folder: Path) -> list[Note]:
    """Return the notes of all workers in the order of their end."""
    notes = [note for path in folder.glob("notes.*") for note in _read(path)]
    return sorted(notes, key=lambda note: note.end_s)


def usual_step_s(notes: Iterable[Note]) -> float:
    """Return the median time between two steps of a worker, the first ones left out."""
    ends_s: dict[str, list[float]] = {}
    for note in notes:
        ends_s.setdefault(note.worker, []).append(note.end_s)
    times_s = [
        late_s - early_s
        for worker_s in ends_s.values()
        for early_s, late_s in zip(worker_s[WARM_STEPS:], worker_s[WARM_STEPS + 1 :], strict=False)
    ]
    return statistics.median(times_s)


def judge(name: str, notes: Sequence[Note], kill_s: float, *, finished: bool, remark: str) -> Pause:
    """Return the pause that the notes of all workers but the victim tell of."""
    kept = [note for note in notes if note.is_kept]
    before = [note for note in kept if note.end_s <= kill_s]
    usual_s = usual_step_s(before)
    group = before[-1].group
    after = [note for note in kept if note.end_s > kill_s and note.group != group]
    # Later steps of the same group are made with the victim's successor.
    old = [note for note in kept if note.group == group and (not after or note.end_s < after[0].end_s)]
    reached, anchor_s = max(note.step for note in old), max(kill_s, old[-1].end_s)
    past = next((note for note in after if note.step >= reached), None)
    return Pause(
        name=name,
        pause_s=past.end_s - anchor_s - usual_s * (past.step - reached) if past else None,
        first_step_s=after[0].end_s - anchor_s - usual_s if after else None,
        usual_step_s=usual_s,
        steps_lost=_redone(notes, after, reached, kill_s),
        finished=finished,
        remark=remark,
    )


def _redone(notes: Sequence[Note], after: Sequence[Note], reached: int, kill_s: float) -> int:
    """Count finished steps that were made again, and discarded ones until the first good one."""
    if not after:
        return 0
    finished = max(0, reached + 1 - after[0].step)
    discarded: dict[str, int] = {}
    for note in notes:
        if not note.is_kept and kill_s < note.end_s < after[0].end_s:
            discarded[note.worker] = discarded.get(note.worker, 0) + 1
    return finished + max(discarded.values(), default=0)


def _read(path: Path) -> list[Note]:
    # A worker that was killed while it wrote leaves half a line.
    whole = [line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [
        Note(worker=path.name, step=int(step), end_s=float(end_s), group=int(group), is_kept=kept == "1")
        for step, end_s, group, kept in whole
    ]
