"""What goes wrong in which job, and who should be named for it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

from holdfast.findings import Cause

STEPS = 400
"""Far more than are needed: a run is ended when somebody has been named."""
AT = 50

Way = Literal["lab", "script", "none"]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One run: a job, what is done to it, and what should be said."""

    kind: str
    way: Way
    """By whose means the rank is hurt: the lab's from outside, or something in the script itself."""
    job: str
    ranks: int = 4
    arguments: tuple[str, ...] = ()
    fault: str = ""
    """In the words of ``holdfast inject``, or ``KIND:RANK:STEP:SECONDS`` for the script."""
    guilty: tuple[int, ...] = ()
    link: tuple[int, int] | None = None
    cause: Cause | None = None
    is_alone: bool = False
    """Whether it needs the machine for itself: real computing, a core for each rank."""
    env: dict[str, str] = field(default_factory=dict)


EMULATED = ("--device", "emulated", "--op-ms", "15", "--steps", str(STEPS))
SMALL = ("--op-ms", "12", "--steps", str(STEPS))
PINNED = ("--pin", "--width", "192", "--layers", "3", "--batch", "8", "--steps", str(STEPS))
LAB_JOBS = ("ddp", "fsdp", "pipeline")
SCRIPTS = ("loop", "trainer")


def scenes(seed: int) -> list[Scene]:
    """Return every scene, with a rank, a moment and a severity of this seed's choice."""
    return [
        *_lab_scenes(seed),
        *_script_scenes(seed),
        *_cpu_scenes(seed),
        *_network_scenes(seed),
        *_hang_scenes(seed),
    ]


def _chance(seed: int, *what: object) -> random.Random:
    return random.Random(f"{seed}/{'/'.join(map(str, what))}")


def _lab_scenes(seed: int) -> list[Scene]:
    kinds: list[tuple[str, Cause, float, float]] = [
        ("slow_device", "compute", 1.4, 3.0),
        ("data_stall", "data_loading", 0.03, 0.12),
        ("gc_storm", "garbage_collection", 0.04, 0.12),
        ("copy_storm", "host_memory", 0.04, 0.12),
        ("slow_storage", "storage", 8.0, 30.0),
    ]
    found = []
    for job in LAB_JOBS:
        for kind, cause, least, most in kinds:
            chance = _chance(seed, job, kind)
            rank, at = chance.randrange(4), AT + chance.randrange(20)
            severity = chance.uniform(least, most)
            found.append(
                Scene(
                    kind=kind,
                    way="lab",
                    job=job,
                    arguments=_pipeline_or(job, EMULATED),
                    fault=f"{kind} rank={rank} at={at} severity={severity:.3f}",
                    guilty=(rank,),
                    cause=cause,
                )
            )
    return found


def _script_scenes(seed: int) -> list[Scene]:
    kinds: list[tuple[str, Cause, float, float]] = [
        ("hot", "compute", 0.01, 0.04),
        ("prepare", "data_loading", 0.02, 0.08),
        ("collect", "garbage_collection", 0.03, 0.08),
        ("touch", "host_memory", 0.03, 0.08),
    ]
    found = []
    for job in SCRIPTS:
        for kind, cause, least, most in kinds:
            chance = _chance(seed, job, kind)
            rank, at = chance.randrange(2), AT + chance.randrange(20)
            found.append(
                Scene(
                    kind=kind,
                    way="script",
                    job=job,
                    ranks=2,
                    arguments=SMALL,
                    fault=f"{kind}:{rank}:{at}:{chance.uniform(least, most):.3f}",
                    guilty=(rank,),
                    cause=cause,
                )
            )
    chance = _chance(seed, "loop", "more")
    rank = chance.randrange(2)
    found.append(
        Scene(
            kind="more",
            way="script",
            job="loop",
            ranks=2,
            arguments=SMALL,
            fault=f"more:{rank}:{AT}:0",
            guilty=(rank,),
            cause="input_imbalance",
        )
    )
    return found


def _cpu_scenes(seed: int) -> list[Scene]:
    ways = [
        ("cpu_quota", "via=cgroup", 1.6, 3.0),
        ("cpu_quota", "via=sigstop", 1.6, 3.0),
        # One rival hardly slows a rank that sleeps for half of its time: the kernel lets sleepers go first.
        ("busy_neighbour", "", 3.0, 5.9),
    ]
    found = []
    for job in ("ddp", "fsdp"):
        for kind, via, least, most in ways:
            chance = _chance(seed, job, kind, via)
            rank = chance.randrange(2)
            severity = chance.uniform(least, most)
            severity = float(int(severity)) if kind == "busy_neighbour" else severity
            found.append(
                Scene(
                    kind=f"{kind} {via}".strip(),
                    way="lab",
                    job=job,
                    ranks=2,
                    arguments=PINNED,
                    fault=f"{kind} rank={rank} at={AT} severity={severity:.2f} {via}".strip(),
                    guilty=(rank,),
                    cause="cpu_contention",
                    is_alone=True,
                )
            )
    return found


def _network_scenes(seed: int) -> list[Scene]:
    found = []
    for job in ("ddp", "fsdp"):
        for kind in ("slow_link", "slow_nic"):
            for via in ("pacing", "namespace"):
                chance = _chance(seed, job, kind, via)
                rank = chance.randrange(4)
                # Gloo's ring has a link from each rank to the next.
                pair = (rank, (rank + 1) % 4)
                target = f"{pair[0]}-{pair[1]}" if kind == "slow_link" else str(rank)
                severity = chance.uniform(4.0, 10.0)
                found.append(
                    Scene(
                        kind=f"{kind} {via}",
                        way="lab",
                        job=job,
                        arguments=(*EMULATED, "--width", "192"),
                        fault=f"{kind} rank={target} at={AT} severity={severity:.2f} via={via}",
                        guilty=pair if kind == "slow_link" else (rank,),
                        link=pair if kind == "slow_link" else None,
                        cause="link",
                    )
                )
    return found


def _hang_scenes(seed: int) -> list[Scene]:
    found = []
    for job, kind in (("ddp", "stopped"), ("fsdp", "stopped"), ("pipeline", "stopped"), ("loop", "asleep")):
        chance = _chance(seed, job, kind)
        ranks = 2 if job == "loop" else 4
        rank, at = chance.randrange(ranks), AT + chance.randrange(10)
        is_stopped = kind == "stopped"
        found.append(
            Scene(
                kind=f"hang {kind}",
                way="lab" if is_stopped else "script",
                job=job,
                ranks=ranks,
                arguments=_pipeline_or(job, SMALL if job == "loop" else EMULATED),
                fault=f"hang rank={rank} at={at}" if is_stopped else f"sleep_forever:{rank}:{at}:0",
                guilty=(rank,),
                cause="hang",
            )
        )
    return found


def _pipeline_or(job: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments of a job; a stage of a pipeline does little at a time, so its ops are short."""
    return (*EMULATED[:3], "6", *EMULATED[4:], "--layers", "4") if job == "pipeline" else arguments


def healthy_scenes(count: int) -> list[Scene]:
    """Return runs in which nothing is wrong, with what people's jobs have in them besides training."""
    extras: list[tuple[str, int, tuple[str, ...]]] = [
        ("ddp", 4, EMULATED),
        ("fsdp", 4, EMULATED),
        ("pipeline", 4, _pipeline_or("pipeline", EMULATED)),
        ("loop", 2, (*SMALL, "--evaluate-every", "20")),
        ("loop", 2, (*SMALL, "--save-every", "30")),
        ("loop", 2, (*SMALL, "--growing")),
        ("trainer", 2, (*SMALL, "--evaluate-every", "20")),
        ("trainer", 2, (*SMALL, "--save-every", "30")),
    ]
    return [
        Scene(kind="healthy", way="none", job=job, ranks=ranks, arguments=(*arguments, "--seed", str(number)))
        for number, (job, ranks, arguments) in ((n, extras[n % len(extras)]) for n in range(count))
    ]
