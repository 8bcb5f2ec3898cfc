"""What there is to plan: the shape of a job, what its operations cost, and how fast every worker is."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import msgspec

from holdfast.errors import InputError


class Worker(NamedTuple):
    """A place in the grid: one stage of one data-parallel pipeline, written ``pipeline.stage``."""

    pipeline: int
    stage: int

    def __str__(self) -> str:
        return f"{self.pipeline}.{self.stage}"


class Costs(msgspec.Struct, frozen=True):
    """How long one micro-batch takes at one stage on a healthy worker, in any unit of time."""

    forward: float = 1.0
    input: float = 1.0
    """Backward with respect to the stage's input: other stages wait for it."""
    weight: float = 1.0
    """Backward with respect to the weights: only the optimizer waits for it."""

    def __post_init__(self) -> None:
        if not all(math.isfinite(cost) and cost >= 0 for cost in self.each):
            raise InputError(f"costs are {_join(self.each)}, expected three finite numbers, none negative")
        if sum(self.each) <= 0:
            raise InputError("costs are 0,0,0, expected a stage that takes some time")

    @property
    def each(self) -> tuple[float, float, float]:
        """Forward, input, weight."""
        return (self.forward, self.input, self.weight)

    @property
    def total(self) -> float:
        """What one micro-batch takes altogether."""
        return self.forward + self.input + self.weight


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A job of ``dp`` pipelines with ``pp`` stages, each given ``microbatches`` per step."""

    dp: int
    pp: int
    microbatches: int
    costs: tuple[Costs, ...] = ()
    """One per stage; none means 1, 1, 1 everywhere."""
    comm: float = 0.0
    """How long a transfer between two stages takes, in the unit of the costs."""
    memory: tuple[int, ...] | None = None
    """Per stage, how many micro-batches a worker may hold from the start of F to the end of W; None: any."""
    state_bytes: tuple[int, ...] = ()
    """Per stage, what a worker must copy to take a role there: parameters, optimizer state; none: unknown."""
    speeds: tuple[tuple[float, ...], ...] = ()
    """``speeds[pipeline][stage]``: 1 healthy, 0.5 half as fast, 0 dead; none means all healthy."""

    def __post_init__(self) -> None:
        for name in ("dp", "pp", "microbatches"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}, expected 1 or more")
        if not self.costs:
            msgspec.structs.force_setattr(self, "costs", (Costs(),) * self.pp)
        if not self.speeds:
            msgspec.structs.force_setattr(self, "speeds", ((1.0,) * self.pp,) * self.dp)
        self._check_shapes()
        if not (math.isfinite(self.comm) and self.comm >= 0):
            raise InputError(f"comm is {self.comm}, expected a finite number, not negative")
        for stage, cap in enumerate(self.memory or ()):
            if cap < 1:
                raise InputError(f"memory of stage {stage} is {cap}, expected 1 micro-batch or more")
        self._check_speeds()

    def _check_shapes(self) -> None:
        if len(self.costs) != self.pp:
            raise InputError(f"costs are given for {len(self.costs)} stages, expected {self.pp}")
        if self.memory is not None and len(self.memory) != self.pp:
            raise InputError(f"memory is given for {len(self.memory)} stages, expected {self.pp}")
        if self.state_bytes and len(self.state_bytes) != self.pp:
            raise InputError(f"state_bytes are given for {len(self.state_bytes)} stages, expected {self.pp}")
        if any(size < 0 for size in self.state_bytes):
            raise InputError(f"state_bytes are {self.state_bytes}, expected none negative")
        if len(self.speeds) != self.dp or any(len(row) != self.pp for row in self.speeds):
            raise InputError(f"speeds do not form a grid of {self.dp} pipelines by {self.pp} stages")

    def _check_speeds(self) -> None:
        for worker in self.workers:
            if not 0 <= self.speed(worker) <= 1:
                raise InputError(
                    f"worker {worker} has speed {self.speed(worker)}, expected 0 (dead) to 1 (healthy)"
                )
        for stage in range(self.pp):
            if not self.live(stage):
                raise InputError(f"all {self.dp} workers of stage {stage} are dead, expected one alive")

    @property
    def workers(self) -> list[Worker]:
        """Every worker, dead ones too, pipeline by pipeline."""
        return [Worker(pipeline, stage) for pipeline in range(self.dp) for stage in range(self.pp)]

    def speed(self, worker: Worker) -> float:
        """How fast a worker is, as a share of a healthy one."""
        return self.speeds[worker.pipeline][worker.stage]

    def live(self, stage: int) -> list[int]:
        """The pipelines whose worker of this stage is alive."""
        return [pipeline for pipeline in range(self.dp) if self.speeds[pipeline][stage] > 0]

    def cap(self, stage: int) -> int:
        """How many micro-batches a worker of this stage may hold; without a limit, as many as there are."""
        return self.dp * self.microbatches if self.memory is None else self.memory[stage]

    @property
    def healthy(self) -> Problem:
        """The same job with nobody slow or dead."""
        return msgspec.structs.replace(self, speeds=())


def parse_worker(name: str) -> Worker:
    """Return the worker that is written ``1.2``."""
    match = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})", name)
    if match is None:
        raise InputError(f"{name!r} is no worker, expected pipeline.stage, such as '1.2'")
    return Worker(int(match[1]), int(match[2]))


def make_speeds(dp: int, pp: int, changed: dict[Worker, float]) -> tuple[tuple[float, ...], ...]:
    """Return the grid of speeds in which all workers but the given ones are healthy."""
    for worker in changed:
        if not (0 <= worker.pipeline < dp and 0 <= worker.stage < pp):
            raise InputError(
                f"there is no worker {worker}, expected 0.0 to {Worker(dp - 1, pp - 1)} (pipeline.stage)"
            )
    return tuple(
        tuple(changed.get(Worker(pipeline, stage), 1.0) for stage in range(pp)) for pipeline in range(dp)
    )


def _join(numbers: tuple[float, ...]) -> str:
    return ",".join(f"{number:g}" for number in numbers)
