"""FALCON's evaluation schedules for 64 and 256 GPUs, as histories; from its figures, digitised.

Where each fault was is known; how bad it was is taken from the level of the unmitigated curve, since the
injected seconds of sleep do not explain it.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.mitigate.condition import Arrangement, Condition, SlowLink, make_speeds
from holdfast.mitigate.model import Replicas, Shape
from holdfast.mitigate.prices import Deed
from holdfast.simulate.incidents import History, Trouble


class Compute(NamedTuple):
    """Slow workers, and how slow the job was with them and whatever else was wrong."""

    start_s: float
    end_s: float
    places: tuple[tuple[int, int], ...]
    """Pipeline and stage of each."""
    slowdown: float


class Network(NamedTuple):
    """A slow link between two workers of a stage, and how slow the job was because of it."""

    start_s: float
    end_s: float
    pipelines: tuple[int, int]
    stage: int
    slowdown: float


class Published(NamedTuple):
    """A schedule, and the job it was for."""

    shape: Shape
    healthy_s: float
    end_s: float
    compute: tuple[Compute, ...]
    network: tuple[Network, ...]


_DATA_SHARE = 0.1
"""Of a healthy step, for gradients; published is only what congestion did to the whole."""

# Stage s of the 64 GPUs is machines 2s and 2s + 1; replica is GPU + 8 * (machine mod 2).
_NODES_64 = tuple(2 * stage + pipeline // 8 for pipeline in range(16) for stage in range(4))
GPUS_64 = Published(
    shape=Shape(
        dp=16,
        pp=4,
        microbatches=8,
        data_share=_DATA_SHARE,
        stage_share=0.01,
        pile_up=0.2,
        nodes=_NODES_64,
    ),
    healthy_s=60 / 18.4,
    end_s=2974,
    compute=(
        Compute(62, 159, ((12, 0),), 18.4 / 15.2),
        Compute(360, 486, ((11, 0), (15, 0)), 18.4 / 13.0),
        Compute(941, 1081, ((10, 1),), 18.4 / 11.2),
        Compute(1146, 1254, ((0, 0), (1, 0), (2, 0)), 18.4 / 12.0),
        Compute(1362, 1571, ((10, 3), (13, 3)), 18.4 / 11.0),
        Compute(1718, 1835, ((10, 2), (12, 2), (13, 2)), 18.4 / 12.7),
        Compute(2304, 2465, ((0, 1),), 18.4 / 11.7),
        Compute(2635, 2790, ((1, 2), (4, 2), (7, 2)), 18.4 / 10.7),
    ),
    network=(
        Network(606, 2061, (0, 8), 3, 18.4 / 16.0),
        Network(2061, 2974, (0, 8), 0, 18.4 / 13.7),
    ),
)

# Eight tensor-parallel GPUs of a machine are one worker.
GPUS_256 = Published(
    shape=Shape(dp=16, pp=2, microbatches=16, data_share=_DATA_SHARE, stage_share=0.01, pile_up=0.2),
    healthy_s=60 / 37.5,
    end_s=2800,
    compute=(
        Compute(292, 429, ((3, 0),), 37.5 / 19.7),
        Compute(480, 606, ((7, 1),), 37.5 / 15.5),
        Compute(760, 850, ((11, 0),), 37.5 / 17.4),
        Compute(1091, 1231, ((2, 1),), 37.5 / 18.8),
        Compute(1371, 1576, ((14, 0),), 37.5 / 13.0),
        Compute(1680, 1742, ((5, 1),), 37.5 / 15.0),
        Compute(1838, 1998, ((9, 0),), 37.5 / 22.6),
        Compute(2254, 2345, ((0, 1),), 37.5 / 17.2),
        Compute(2502, 2630, ((12, 0),), 37.5 / 14.2),
        Compute(2680, 2710, ((6, 1),), 37.5 / 32.5),
    ),
    network=(
        Network(850, 1150, (4, 5), 0, 37.5 / 25.0),
        Network(2100, 2350, (8, 9), 1, 37.5 / 23.5),
    ),
)


def history_of(published: Published, prices: dict[Deed, float], *, is_stages: bool) -> History:
    """Return the schedule as a history; its faults make the unmitigated job as slow as it was."""
    shape = published.shape
    model = Replicas(shape)
    troubles = [
        Trouble(start_s=each.start_s, end_s=each.end_s, links=(_link(shape, each),))
        for each in published.network
    ]
    for each in published.compute:
        links = tuple(
            link
            for trouble in troubles
            if trouble.start_s <= (each.start_s + each.end_s) / 2 < trouble.end_s
            for link in trouble.links
        )
        ranks = [pipeline * shape.pp + stage for pipeline, stage in each.places]
        speeds = make_speeds(dict.fromkeys(ranks, _speed(model, ranks, links, each.slowdown)))
        troubles.append(Trouble(start_s=each.start_s, end_s=each.end_s, speeds=speeds))
    return History(
        shape=shape,
        is_stages=is_stages,
        healthy_s=published.healthy_s,
        prices=prices,
        troubles=tuple(troubles),
        horizon_s=published.end_s,
    )


def _link(shape: Shape, network: Network) -> SlowLink:
    first, second = (pipeline * shape.pp + network.stage for pipeline in network.pipelines)
    return SlowLink(first, second, 1 + (network.slowdown - 1) / _DATA_SHARE)


def _speed(model: Replicas, ranks: list[int], links: tuple[SlowLink, ...], slowdown: float) -> float:
    """Return the speed with which a job in which nobody acts is as slow as that."""
    low, high = 0.01, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        condition = Condition(speeds=make_speeds(dict.fromkeys(ranks, middle)), links=links)
        low, high = (middle, high) if model.slowdown(condition, Arrangement()) > slowdown else (low, middle)
    return high
