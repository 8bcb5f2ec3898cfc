"""Synchronous jobs as numbers: what every rank did in every step, and what was done to it.

A rank works for itself, then waits until the slowest is done; in a pipeline the slowest stage is waited for
once per micro-batch. Nothing here is timed: the same seed gives the same steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from holdfast.diagnose.causes import Sign
from holdfast.diagnose.layout import Layout
from holdfast.diagnose.lookout import Lookout
from holdfast.diagnose.naming import Evidence, name_suspects
from holdfast.findings import Cause, ChangePoint, Suspect
from holdfast.telemetry import Step

Floats = npt.NDArray[np.float64]
HarmKind = Literal["compute", "data", "gc", "saving", "work", "contention", "network"]
CAUSES: dict[HarmKind, Cause] = {
    "compute": "compute",
    "data": "data_loading",
    "gc": "garbage_collection",
    "saving": "storage",
    "work": "input_imbalance",
    "contention": "cpu_contention",
    "network": "link",
}
OWN_S, LINK_S, DATA_S = 0.3, 0.02, 0.01
WORK = 1000


@dataclass(frozen=True, kw_only=True)
class Harm:
    """What is done to some ranks, and when."""

    kind: HarmKind
    ranks: tuple[int, ...] = ()
    """Whom; of no meaning for the network."""
    more_s: float = 0.15
    """Per step, on top."""
    first: int = 60
    until: int | None = None
    ramp: int = 1
    """Steps until it is felt in full."""
    period: int = 0
    """Of that many steps it is felt in the first half alone; 0: in all."""

    def felt_s(self, step: int) -> float:
        """Return how much longer a step takes for it."""
        if step < self.first or (self.until is not None and step >= self.until):
            return 0.0
        if self.period and (step - self.first) % self.period >= self.period // 2:
            return 0.0
        return self.more_s * min(1.0, (step - self.first + 1) / self.ramp)


@dataclass(frozen=True, kw_only=True)
class SimulatedJob:
    """A job of so many ranks; with stages, rank r is stage r % stages of pipeline r // stages."""

    ranks: int = 4
    stages: int = 1
    steps: int = 140
    microbatches: int = 8
    noise: float = 0.02
    seed: int = 0
    on_cpu: bool = True
    """Whether the training thread computes, or waits for an accelerator that does."""
    harms: tuple[Harm, ...] = ()
    attempt: int = 0
    cycle: int = 0
    first_step: int = 0
    began_s: float = 1000.0
    flags: Mapping[int, int] = field(default_factory=dict)
    """Flags of single steps, of all ranks."""
    longer_s: Mapping[int, float] = field(default_factory=dict)
    """What single steps take longer, of all ranks' own time."""

    @property
    def layout(self) -> Layout:
        """Who does the same as whom."""
        roles = {rank: rank % self.stages for rank in range(self.ranks)}
        return Layout(kind="chain" if self.stages > 1 else "unknown", roles=roles)

    def run(self) -> Iterator[list[Step]]:
        """Yield the steps of all ranks, step by step."""
        rng = np.random.default_rng(self.seed)
        ended_s = self.began_s
        for number in range(self.first_step, self.first_step + self.steps):
            noise = np.exp(rng.normal(0, self.noise, self.ranks))
            parts = [self._parts(rank, number, float(noise[rank])) for rank in range(self.ranks)]
            own = np.array([each["own_s"] for each in parts])
            duration_s = self._duration(own) + LINK_S + self._network(number)
            ended_s += duration_s
            yield [self._step(rank, number, each, (duration_s, ended_s)) for rank, each in enumerate(parts)]

    def _parts(self, rank: int, number: int, noise: float) -> dict[str, Any]:
        felt: dict[HarmKind, float] = {}
        for harm in self.harms:
            if rank in harm.ranks and harm.kind != "network":
                felt[harm.kind] = felt.get(harm.kind, 0.0) + harm.felt_s(number)
        compute_s = OWN_S * noise
        more_s = sum(felt.values())
        on_cpu_s = compute_s + felt.get("compute", 0.0) + felt.get("work", 0.0) + felt.get("gc", 0.0)
        return {
            "own_s": compute_s + DATA_S + more_s + self.longer_s.get(number, 0.0),
            "data_s": DATA_S + felt.get("data", 0.0),
            "gc_s": felt.get("gc", 0.0),
            "save_s": felt.get("saving", 0.0),
            "cpu_s": 0.97 * on_cpu_s if self.on_cpu else 0.05,
            "work": round(WORK * (1 + felt.get("work", 0.0) / OWN_S)),
        }

    def _duration(self, own: Floats) -> float:
        if self.stages == 1:
            return float(own.max())
        pipelines = own.reshape(-1, self.stages) / self.microbatches
        each = pipelines.sum(axis=1) + (self.microbatches - 1) * pipelines.max(axis=1)
        return float(each.max())

    def _network(self, number: int) -> float:
        return sum(harm.felt_s(number) for harm in self.harms if harm.kind == "network")

    def _step(self, rank: int, number: int, parts: dict[str, Any], times: tuple[float, float]) -> Step:
        own_s = parts.pop("own_s")
        return Step(
            rank=rank,
            step=number,
            attempt=self.attempt,
            cycle=self.cycle,
            duration_s=times[0],
            ended_s=times[1],
            wait_s=times[0] - own_s,
            calls=1,
            flags=self.flags.get(number, 0),
            **parts,
        )


@dataclass
class Watched:
    """What came of looking at a job."""

    lookout: Lookout
    changes: list[ChangePoint] = field(default_factory=list)
    named: list[list[Suspect]] = field(default_factory=list)
    """What was found each time that somebody was to be named."""
    at_steps: list[int] = field(default_factory=list)
    """After which step that was."""

    @property
    def guilty(self) -> list[tuple[list[int], Cause]]:
        """The suspects of the last time."""
        return [(suspect.ranks, suspect.cause) for suspect in self.named[-1]] if self.named else []


def watch(
    batches: Iterable[Sequence[Step]],
    *,
    layout: Layout | None = None,
    signs: Mapping[int, Sequence[Sign]] | None = None,
    lookout: Lookout | None = None,
) -> Watched:
    """Look at a job as a controller does, and name whoever is to be named when it is time."""
    watched = Watched(lookout=Lookout() if lookout is None else lookout)
    for batch in batches:
        watched.changes += watched.lookout.take(batch)
        trouble = watched.lookout.trouble
        if trouble is not None and watched.lookout.is_ripe():
            evidence = Evidence(
                now=watched.lookout.profiles(), healthy=trouble.healthy, layout=layout, signs=signs or {}
            )
            watched.named.append(name_suspects(evidence))
            watched.at_steps.append(max((step.step for step in batch), default=-1))
            watched.lookout.close_case()
    return watched


def watch_job(job: SimulatedJob) -> Watched:
    """Look at a job from its start to its end."""
    return watch(job.run(), layout=job.layout)
