"""What a rank's steps were made of, on average over a window of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.telemetry import Step, StepFlag

NOT_TYPICAL = StepFlag.EVALUATION | StepFlag.CHECKPOINT | StepFlag.SKIPPED | StepFlag.FIRST | StepFlag.COMPILE


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The mean step of one rank; a median would hide a worker that is stopped and continued in turn."""

    rank: int
    steps: int
    duration_s: float
    wait_s: float
    data_s: float
    gc_s: float
    save_s: float
    cpu_s: float
    work: float
    operations_s: float = 0.0
    """In the operations of a plan; 0: not known."""
    is_measured: bool = True
    """Whether waiting was measured; where it was not, all of it passes for own time."""
    error_s: float = 0.0
    """Standard error of its own time."""
    is_planned: bool = False
    """Whether its work is what a plan gave it: having more of it than others is no fault."""

    @property
    def own_s(self) -> float:
        """What the rank needed for itself."""
        return max(0.0, self.duration_s - self.wait_s)

    @property
    def sure_s(self) -> float:
        """What is surely the rank's own: without measured waiting, only what has a name of its own."""
        return self.own_s if self.is_measured else self.data_s + self.gc_s + self.save_s

    @property
    def compute_s(self) -> float:
        """Its own time without what has a name of its own."""
        return max(0.0, self.own_s - self.data_s - self.gc_s - self.save_s)


def is_typical(step: Step) -> bool:
    """Say whether a step was training and nothing else, and was timed."""
    return step.duration_s > 0 and not step.flags & NOT_TYPICAL


def profile_of(steps: Sequence[Step]) -> Profile | None:
    """Return the mean of one rank's steps; None if there is none to tell from."""
    timed = [step for step in steps if step.duration_s > 0]
    # Where every step saves or evaluates, that is what a step is.
    chosen = [step for step in timed if is_typical(step)] or timed
    measured = [step for step in chosen if not step.flags & StepFlag.UNMEASURED] or chosen
    if not measured:
        return None
    count = len(measured)
    own = [step.own_s for step in measured]
    mean_own = sum(own) / count
    spread = math.sqrt(sum((each - mean_own) ** 2 for each in own) / max(1, count - 1))
    return Profile(
        rank=measured[0].rank,
        steps=count,
        duration_s=_mean(step.duration_s for step in measured),
        wait_s=_mean(step.wait_s for step in measured),
        data_s=_mean(step.data_s for step in measured),
        gc_s=_mean(step.gc_s for step in measured),
        save_s=_mean(step.save_s for step in measured),
        cpu_s=_mean(step.cpu_s for step in measured),
        work=_mean(step.work for step in measured),
        operations_s=_mean(step.operations_s for step in measured),
        is_planned=all(step.flags & StepFlag.PLANNED for step in measured),
        is_measured=not any(step.flags & StepFlag.UNMEASURED for step in measured),
        error_s=spread / math.sqrt(count),
    )


def share_of(mine: Profile, other: Profile) -> float:
    """Return how many times as long as another rank one should need, if it were as fast."""
    is_known = mine.is_planned and other.is_planned and mine.work > 0 and other.work > 0
    return mine.work / other.work if is_known else 1.0


def profiles_of(steps: Mapping[int, Sequence[Step]], *, since: int, until: int) -> dict[int, Profile]:
    """Return the profiles of all ranks over the steps from one number on until before another."""
    found = {}
    for rank, mine in steps.items():
        profile = profile_of([step for step in mine if since <= step.step < until])
        if profile is not None:
            found[rank] = profile
    return found


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
