"""What is wrong in which job, and what a diagnosis should say: the fault classes of EROICA's cases."""

from __future__ import annotations

import random
from dataclasses import dataclass

from holdfast.findings import Cause

RANKS = 4


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One run, and the truth about it."""

    kind: str
    guilty: tuple[int, ...] = ()
    """Who should be named; all ranks where all have it."""
    causes: tuple[Cause, ...] = ()
    """Any of these is right; none at all: nobody should be named."""
    function: str = ""
    """A pattern that the function at fault fits, for tools that name functions and no causes."""
    ranks: int = RANKS
    arguments: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    """In the words of ``holdfast inject``."""
    store: tuple[str, ...] = ()
    """Arguments of the object store."""
    module: str = ""
    """A job of the lab instead of ours."""
    is_stuck: bool = False
    """Whether no step ends any more: then there is no profile, and the verdict is that of the hang."""


def scenes(seed: int) -> list[Scene]:
    """Return every scene, with ranks and severities of this seed's choice."""
    return [
        *_slow_data(seed),
        *_slow_code(seed),
        *_slow_network(seed),
        *_slow_devices(seed),
        *_healthy(seed),
    ]


EVERYBODY = tuple(range(RANKS))
EMULATED = ("--emulated",)
REAL = ("--width", "768", "--batch", "64")
"""Two ranks, each with a core of its own."""


def _chance(seed: int, what: str) -> random.Random:
    return random.Random(f"{seed}/{what}")


def _some(chance: random.Random, most: int = 2) -> tuple[int, ...]:
    return tuple(sorted(chance.sample(range(RANKS), chance.randint(1, most))))


def _wrong(kind: str, ranks: tuple[int, ...], amount: float) -> tuple[str, ...]:
    return ("--wrong", kind, "--ranks", *map(str, ranks), "--amount", f"{amount:.4f}")


def _slow_data(seed: int) -> list[Scene]:
    chance = _chance(seed, "storage")
    slow = EVERYBODY if seed % 2 else _some(chance)
    delay = chance.uniform(16, 48)
    store = ("--slow", *map(str, slow), "--delay-ms", f"{delay:.2f}")
    copying = _some(_chance(seed, "copies"))
    amount = _chance(seed, "amount of copies").uniform(0.02, 0.06)
    more = _chance(seed, "lengths").uniform(0.5, 0.9)
    return [
        Scene(
            kind="slow storage read",
            function=r"recv_into",
            guilty=slow,
            causes=("storage",),
            arguments=EMULATED,
            store=store,
        ),
        Scene(
            kind="copy storm in some ranks",
            function=r"copy_",
            guilty=copying,
            causes=("host_memory",),
            arguments=(*EMULATED, *_wrong("copies", copying, amount)),
        ),
        Scene(
            kind="input imbalance",
            function=r"aten|autograd|emulated",
            guilty=EVERYBODY,
            causes=("input_imbalance",),
            arguments=(*EMULATED, *_wrong("lengths", EVERYBODY, more)),
        ),
    ]


def _slow_code(seed: int) -> list[Scene]:
    chance = _chance(seed, "code")
    both = (0, 1)
    victim = chance.randrange(2)
    rivals = chance.randint(3, 5)
    return [
        Scene(
            kind="CPU-bound forward",
            function=r"_think",
            guilty=both,
            causes=("compute",),
            ranks=2,
            arguments=(*REAL, *_wrong("forward", both, chance.uniform(0.004, 0.012))),
        ),
        Scene(
            kind="unsynchronised garbage collection",
            function=r"Python GC",
            guilty=both,
            causes=("garbage_collection",),
            ranks=2,
            arguments=(*REAL, *_wrong("gc", both, chance.uniform(0.1, 0.3))),
        ),
        Scene(
            kind="outside process steals cycles",
            function=r"aten|autograd",
            guilty=(victim,),
            causes=("cpu_contention",),
            ranks=2,
            arguments=REAL,
            faults=(f"busy_neighbour rank={victim} at=10 severity={rivals}",),
        ),
        Scene(
            kind="stuck rank",
            guilty=(chance.randrange(RANKS),),
            causes=("hang",),
            arguments=EMULATED,
            is_stuck=True,
        ),
    ]


def _slow_network(seed: int) -> list[Scene]:
    chance = _chance(seed, "network")
    rank = chance.randrange(RANKS)
    pair = tuple(sorted((rank, (rank + 1) % RANKS)))  # Gloo's ring has a link from each rank to the next.
    severity = chance.uniform(5, 10)
    uneven = [chance.uniform(2.0, 6.0) for _ in EVERYBODY]
    group = 2 * chance.randrange(2)
    wide = (*EMULATED, "--width", "384")
    return [
        Scene(
            kind="one slow link",
            function=r"gloo",
            guilty=pair,
            causes=("link",),
            arguments=wide,
            faults=(f"slow_link rank={rank}-{(rank + 1) % RANKS} at=10 severity={severity:.2f} via=pacing",),
        ),
        Scene(
            kind="uneven bandwidth",
            function=r"gloo",
            guilty=EVERYBODY,
            causes=("link",),
            arguments=wide,
            faults=tuple(
                f"slow_nic rank={each} at=10 severity={slow:.2f} via=pacing"
                for each, slow in zip(EVERYBODY, uneven, strict=True)
            ),
        ),
        Scene(
            kind="slow transport for one group",
            function=r"gloo:all_gather",
            guilty=(group, group + 1),
            causes=("link",),
            arguments=(*EMULATED, "--groups"),
            faults=(f"slow_link rank={group}-{group + 1} at=10 severity={severity:.2f} via=pacing",),
        ),
    ]


def _slow_devices(seed: int) -> list[Scene]:
    chance = _chance(seed, "devices")
    hot = _some(chance)
    return [
        Scene(
            kind="intermittent throttling",
            function=r"aten|autograd|emulated",
            guilty=hot,
            causes=("compute",),
            arguments=(*EMULATED, *_wrong("throttled", hot, chance.uniform(1.5, 2.5))),
        )
    ]


def _healthy(seed: int) -> list[Scene]:
    stages = ("--device", "emulated", "--op-ms", "6", "--layers", "4", "--steps", "100000")
    return [
        Scene(kind="healthy", arguments=(*EMULATED, "--seed", str(seed))),
        Scene(kind="healthy, real compute", ranks=2, arguments=(*REAL, "--seed", str(seed))),
        Scene(kind="healthy with roles", arguments=(*stages, "--seed", str(seed)), module="pipeline"),
    ]
