"""When an update counts: what a step's tally says, and which version all survivors of a failure can reach.

A *version* is the number of updates applied. A worker is *prepared* when it holds the reduced gradient of
the step that follows its version; it then adds what it knows to the step's tally, and nobody reduces the next
step before that tally is complete. In staggered mode it keeps one *shadow*: its state before the last update.
So after a failure every survivor can be where it is, one back by its shadow, or one forward by the gradient
it holds, and the target is the highest version that all of them can reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

CALM_STEPS = 50
"""Steps with a norm below the limit before updates are applied ahead of their verdict again."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What the stages found out about one step, as far as it is known."""

    squares: dict[int, float] = {}
    """Per stage, the sum of squares of its reduced gradient; not finite if any value of it is not."""
    overflows: dict[int, bool] = {}
    """Per stage, whether a gradient did not fit its fixed-point range: the sum means nothing."""
    losses: list[float] = []
    """One per micro-batch, pipeline by pipeline; known from the last stage."""

    def is_complete(self, stages: int) -> bool:
        """Say whether every stage has spoken."""
        return len(self.squares) == stages

    @property
    def norm(self) -> float:
        """The norm of the whole gradient; stages are added in their order, whoever spoke first."""
        return math.sqrt(sum(self.squares[stage] for stage in sorted(self.squares)))

    @property
    def loss(self) -> float:
        """The mean over all micro-batches, added in their order."""
        return sum(self.losses) / len(self.losses)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with the update of a step."""

    is_void: bool = False
    """The step has to be computed again: its sum did not fit."""
    scale: float = 1.0
    """What the gradient is multiplied by; 0 skips the update."""

    @property
    def is_plain(self) -> bool:
        """An update applied ahead of this verdict was right."""
        return not self.is_void and self.scale == 1.0


def merge(tallies: Iterable[Tally]) -> Tally:
    """Join what several workers know of one step; those of a stage know the same."""
    squares: dict[int, float] = {}
    overflows: dict[int, bool] = {}
    losses: list[float] = []
    for tally in tallies:
        squares |= tally.squares
        overflows |= tally.overflows
        losses = tally.losses or losses
    return Tally(squares=squares, overflows=overflows, losses=losses)


def judge(tally: Tally, *, max_norm: float | None) -> Verdict:
    """Say what becomes of an update; also of a tally of one stage alone, which may show it early."""
    if any(tally.overflows.values()):
        return Verdict(is_void=True)
    norm = tally.norm
    if not math.isfinite(norm):
        return Verdict(scale=0.0)
    if max_norm is not None and norm > max_norm:
        return Verdict(scale=max_norm / (norm + 1e-6))
    return Verdict()


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How far a worker is, as it reports it after a failure."""

    version: int
    is_prepared: bool = False
    has_shadow: bool = False
    tallies: dict[int, Tally] = {}
    """What it knows of its last steps, by step."""
    acts: int = 0
    """What it has done together with all others between steps: how many times it loaded, saved, evaluated."""
    outcome: int | None = None
    """The version that one more act would bring it to; all have it in hand before anybody has it done."""

    @property
    def reachable(self) -> set[int]:
        """The versions that it can be at without computing a step."""
        behind = {self.version - 1} if self.has_shadow else set()
        ahead = {self.version + 1} if self.is_prepared else set()
        return {self.version} | behind | ahead

    def after(self, acts: int) -> Standing:
        """Return how far it is once it has done what others have."""
        if self.acts >= acts or self.outcome is None:
            return self
        return Standing(version=self.outcome, acts=acts)


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Where all survivors go on."""

    version: int
    tally: Tally | None = None
    """Of the step that made this version; None where it is not needed or not known."""
    acts: int = 0
    """How many acts all have done by then."""


def agree(standings: Mapping[int, Standing], *, stages: int) -> Agreement | None:
    """Return the highest version that every survivor can reach, None if there is none.

    An update whose tally says that it has to be computed again cannot be reached by applying it.
    """
    acts = max(standing.acts for standing in standings.values())
    standings = {rank: standing.after(acts) for rank, standing in standings.items()}
    common = set.intersection(*(standing.reachable for standing in standings.values()))
    for version in sorted(common, reverse=True):
        tally = merge(
            standing.tallies[version - 1]
            for standing in standings.values()
            if version - 1 in standing.tallies
        )
        if not tally.is_complete(stages):
            # Nobody needs it where all began, or go back to: at the start, or after a checkpoint was loaded.
            if all(standing.version >= version for standing in standings.values()):
                return Agreement(version=version, acts=acts)
            # Some stage never was prepared for that step.
            continue
        if any(tally.overflows.values()):
            continue
        return Agreement(version=version, tally=tally, acts=acts)
    return None
