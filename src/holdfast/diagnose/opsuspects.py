"""Who is to blame in a trace of operations: a worker, a stage, the input, a link; each with what it costs.

A worker is held against its peers of the same stage, and a stage against the others: a stage that has more to
do is no slow worker. What all stages of a pipeline share, or what differs from micro-batch to micro-batch,
forward and backward alike, is the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from holdfast.diagnose.replay import BACKWARD, FORWARD, Steps
from holdfast.diagnose.whatif import Mask, fixed_s
from holdfast.findings import Cause, Suspect
from holdfast.observe.optrace import Floats

MARGIN = 1.1
"""How much slower than its peers somebody has to be."""
LEAST_GAIN = 0.02
"""Share of the step that goes if it is mended; less is not worth a word."""
_SHARED = 0.5
"""Part of its excess that a worker may have in common with the other stages of its pipeline."""
_ALIKE = 0.9
"""Correlation of forward and backward over micro-batches from which on their input is behind both."""
_UNEVEN = 0.05
"""Spread of micro-batches, of the logarithm of their times, from which on they differ."""
_SLOW_LINK = 1.5
_SUREST = 0.99

Place = tuple[int, int]
"""Data-parallel rank and stage."""


class _Compute:
    """What every worker computes, by step."""

    def __init__(self, steps: Steps) -> None:
        found: dict[Place, list[int]] = {}
        for at, op in enumerate(steps.ops):
            if op.name in (FORWARD, BACKWARD):
                found.setdefault((op.dp, op.stage), []).append(at)
        self.busy_s = {place: steps.moved_s[ops].sum(axis=0) for place, ops in found.items()}
        self.ratios = {place: ratio for place in found if (ratio := self._ratio(place)) is not None}
        """Of each worker to its peers of the same stage, by step; not of one that has none."""

    def _ratio(self, place: Place) -> Floats | None:
        peers = [busy for other, busy in self.busy_s.items() if other[1] == place[1] and other != place]
        return self.busy_s[place] / np.median(peers, axis=0) if peers else None

    def shared(self, place: Place) -> float:
        """Return the excess that the other stages of its pipeline have in the median."""
        others = [
            float(np.median(ratio)) for at, ratio in self.ratios.items() if at[0] == place[0] and at != place
        ]
        return float(np.median(others)) - 1 if others else 0.0


def find_suspects(steps: Steps, ranks: Mapping[Place, int]) -> list[Suspect]:
    """Return who is to blame, the dearest first."""
    compute = _Compute(steps)
    workers, pipelines = _apart(compute)
    found = [
        *_slow_workers(steps, ranks, compute, workers),
        *_long_pipelines(steps, ranks, compute, pipelines),
        *_heavy_stages(steps, ranks, compute, set(workers)),
        *_uneven_input(steps, ranks),
        *_slow_transfers(steps, ranks),
        *_collections(steps, ranks),
    ]
    return sorted(found, key=lambda suspect: -(suspect.cost_s or 0.0))


class _Charge(NamedTuple):
    """What somebody is blamed for."""

    ranks: Iterable[int]
    cause: Cause
    said: str
    sure: float


def _priced(steps: Steps, mended_s: Floats, charge: _Charge) -> Iterator[Suspect]:
    """Yield a suspect with its price, by the durations without it; nobody if that hardly helps."""
    now_s, then_s = (float(steps.play(each).mean()) for each in (steps.moved_s, mended_s))
    if now_s <= 0 or then_s > (1 - LEAST_GAIN) * now_s:
        return
    price = f"without it a step would take {then_s:.4g} s instead of {now_s:.4g} s"
    yield Suspect(
        ranks=sorted(charge.ranks),
        cause=charge.cause,
        slowdown=now_s / then_s,
        cost_s=(now_s - then_s) * len(steps.steps),
        confidence=min(_SUREST, max(0.5, charge.sure)),
        evidence=[charge.said, price],
    )


# --- workers, pipelines, stages -----------------------------------------------------------------


def _apart(compute: _Compute) -> tuple[list[Place], list[int]]:
    """Return workers that are slow by themselves, and pipelines whose workers are so together."""
    workers, pipelines = [], set()
    for place, ratio in compute.ratios.items():
        excess = float(np.median(ratio)) - 1
        if excess < MARGIN - 1:
            continue
        if compute.shared(place) >= _SHARED * excess:
            pipelines.add(place[0])
        else:
            workers.append(place)
    return workers, sorted(pipelines)


def _slow_workers(
    steps: Steps, ranks: Mapping[Place, int], compute: _Compute, workers: Sequence[Place]
) -> Iterator[Suspect]:
    for place in workers:
        ratio = compute.ratios[place]
        peers = sum(other[1] == place[1] for other in compute.busy_s) - 1
        said = (
            f"its compute takes {np.median(ratio):.2f}x as long as that of the {peers} other workers "
            f"of stage {place[1]}, in {_holds(ratio):.0%} of {len(ratio)} steps"
        )
        mended = fixed_s(steps, _is_compute(steps) & (steps.dps == place[0]) & (steps.stages == place[1]))
        yield from _priced(steps, mended, _Charge([ranks[place]], "compute", said, _holds(ratio)))


def _long_pipelines(
    steps: Steps, ranks: Mapping[Place, int], compute: _Compute, pipelines: Sequence[int]
) -> Iterator[Suspect]:
    for dp in pipelines:
        mine = [ratio for place, ratio in compute.ratios.items() if place[0] == dp]
        ratio = np.median(mine, axis=0)
        said = f"all stages of pipeline {dp} compute {np.median(ratio):.2f}x as long as those of the others"
        mended = fixed_s(steps, _is_compute(steps) & (steps.dps == dp))
        whose = [rank for place, rank in ranks.items() if place[0] == dp]
        yield from _priced(steps, mended, _Charge(whose, "input_imbalance", said, _holds(ratio)))


def _heavy_stages(
    steps: Steps, ranks: Mapping[Place, int], compute: _Compute, slow: set[Place]
) -> Iterator[Suspect]:
    healthy = {place: busy for place, busy in compute.busy_s.items() if place not in slow}
    stages = sorted({stage for _, stage in healthy})
    level = {at: np.median([b for (_, s), b in healthy.items() if s == at], axis=0) for at in stages}
    for stage in stages:
        others = [level[other] for other in stages if other != stage]
        if not others:
            continue
        ratio = level[stage] / np.median(others, axis=0)
        if np.median(ratio) < MARGIN:
            continue
        said = (
            f"stage {stage} computes {np.median(ratio):.2f}x as long as the median of the others, on all its "
            f"workers, in {_holds(ratio):.0%} of {len(ratio)} steps"
        )
        whose = [rank for place, rank in ranks.items() if place[1] == stage]
        balanced = _balanced(steps)  # What one stage is rid of, the others have to do.
        yield from _priced(steps, balanced, _Charge(whose, "stage_imbalance", said, _holds(ratio)))


def _balanced(steps: Steps) -> Floats:
    """Return all durations, with as much compute at every stage."""
    even = steps.moved_s.copy()
    for name in (FORWARD, BACKWARD):
        mask = steps.names == name
        even[mask] = even[mask].mean()
    return even


def _holds(ratio: Floats, margin: float = MARGIN) -> float:
    """Return in which share of the steps somebody is slower than others by the margin."""
    return float(np.mean(ratio >= margin))


def _is_compute(steps: Steps) -> Mask:
    return np.isin(steps.names, (FORWARD, BACKWARD))


# --- input --------------------------------------------------------------------------------------


def _uneven_input(steps: Steps, ranks: Mapping[Place, int]) -> Iterator[Suspect]:
    """Yield the input if micro-batches differ, forward and backward alike."""
    forward, backward = (_unusual(steps, name) for name in (FORWARD, BACKWARD))
    both = sorted(set(forward) & set(backward))
    if not both:
        return
    x, y = (np.concatenate([part[key] for key in both]) for part in (forward, backward))
    if min(x.std(), y.std()) < _UNEVEN:
        return
    alike = float(np.corrcoef(x, y)[0, 1])
    if alike < _ALIKE:
        return
    said = (
        f"micro-batches differ by {np.std(x):.0%} forward and {np.std(y):.0%} backward, and those that are "
        f"long in one are long in the other (correlation {alike:.2f})"
    )
    yield from _priced(steps, _evened(steps), _Charge(ranks.values(), "input_imbalance", said, alike))


def _unusual(steps: Steps, name: str) -> dict[tuple[int, int, int], Floats]:
    """Return how far each micro-batch is off what is usual for its worker, as logarithms, by step."""
    found = {}
    for mine in _by_worker(steps, name):
        if steps.moved_s[mine].min() <= 0:
            continue
        logs = np.log(steps.moved_s[mine])
        for place, row in zip(mine, logs - np.median(logs), strict=True):
            op = steps.ops[place]
            found[op.dp, op.stage, op.number] = row
    return found


def _evened(steps: Steps) -> Floats:
    """Return all durations, with each worker's compute the same for all its micro-batches."""
    even = steps.moved_s.copy()
    for name in (FORWARD, BACKWARD):
        for mine in _by_worker(steps, name):
            even[mine] = even[mine].mean()
    return even


def _by_worker(steps: Steps, name: str) -> Iterable[list[int]]:
    """Return the operations of a name, those of each worker together."""
    found: dict[Place, list[int]] = {}
    for place, op in enumerate(steps.ops):
        if op.name == name:
            found.setdefault((op.dp, op.stage), []).append(place)
    return found.values()


# --- transfers and pauses -----------------------------------------------------------------------


def _slow_transfers(steps: Steps, ranks: Mapping[Place, int]) -> Iterator[Suspect]:
    """Yield links and groups that take longer than others for the same."""
    ways: dict[tuple[str, tuple[Place, ...]], list[int]] = {}
    for group in steps.groups:
        if len(group) > 1:
            ends = tuple(sorted({(steps.ops[place].dp, steps.ops[place].stage) for place in group}))
            ways.setdefault((steps.ops[group[0]].name, ends), []).extend(group)
    taken = {way: np.median(steps.moved_s[places], axis=0) for way, places in ways.items()}
    for (name, ends), places in ways.items():
        others = [value for way, value in taken.items() if way[0] == name and way[1] != ends]
        if not others:
            continue
        usual = np.maximum(np.median(others, axis=0), 1e-9)
        ratio = taken[name, ends] / usual
        if np.median(ratio) < _SLOW_LINK:
            continue
        whose = [ranks[end] for end in ends]
        said = f"{name} takes {np.median(ratio):.1f}x as long between ranks {whose} as elsewhere"
        mask = np.zeros(len(steps.ops), bool)
        mask[places] = True
        charge = _Charge(whose, "link", said, _holds(ratio, _SLOW_LINK))
        yield from _priced(steps, fixed_s(steps, mask), charge)


def _collections(steps: Steps, ranks: Mapping[Place, int]) -> Iterator[Suspect]:
    """Yield workers whose garbage collection holds the job up."""
    mask = steps.names == "gc"
    paused = steps.moved_s[mask]
    if not paused.size or paused.max() <= 0:
        return
    whose = {
        ranks[op.dp, op.stage]
        for op, is_gc, row in zip(steps.ops, mask, steps.moved_s, strict=True)
        if is_gc and row.max() > 0
    }
    said = f"pauses for garbage collection of up to {paused.max():.3g} s"
    without = np.where(mask[:, None], 0.0, steps.moved_s)
    yield from _priced(steps, without, _Charge(whose, "garbage_collection", said, _ALIKE))
