"""What a step would take if something in it were as it should be: the price of a worker, stage or operation.

*Ideal* is the published one: of compute the mean over all workers, steps and micro-batches, of transfers the
median. The slowdown of a part is what is left if all but that part were ideal. *Fixed* is the other way
round: all as it was, and the part as its peers are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.diagnose.replay import BACKWARD, FORWARD, Op, Steps
from holdfast.observe.optrace import Floats

COMPUTE = frozenset({FORWARD, BACKWARD, "optimizer", "gc"})
_WORST = 0.03
"""Share of workers whose part in the slowdown is told: 3 %, as published, and at least one."""

Mask = npt.NDArray[np.bool_]


class Slowdowns(msgspec.Struct, frozen=True, kw_only=True):
    """How much longer a step takes than an ideal one, in all and by its parts."""

    slowdown: float
    step_s: float
    """Played with the durations of the record."""
    recorded_s: float
    """From the first start to the last end; it has launch delays that a play leaves out."""
    ideal_s: float
    by_stage: dict[int, float]
    by_dp: dict[int, float]
    by_op: dict[str, float]
    by_rank: dict[int, float]
    worst_share: float | None
    """Of the slowdown, what goes if the worst 3 % of the workers are ideal."""
    last_stage_share: float | None
    """The same for the last stage."""


def price(steps: Steps, ranks: dict[tuple[int, int], int]) -> Slowdowns:
    """Return the slowdown of everything, by the means over steps."""
    ideal = ideal_s(steps)
    played, best = steps.play(steps.moved_s), steps.play(ideal)

    def left(mask: Mask) -> float:
        return float((steps.play(np.where(mask[:, None], steps.moved_s, ideal)) / best).mean())

    def by(part: Callable[[Op], Hashable]) -> dict[Hashable, float]:
        names = [part(op) for op in steps.ops]
        return {
            name: left(np.array([each == name for each in names])) for name in sorted(set(names), key=str)
        }

    by_rank = by(lambda op: ranks[op.dp, op.stage])
    worst = sorted(by_rank, key=lambda rank: -by_rank[rank])[: max(1, round(_WORST * len(by_rank)))]
    last = max(op.stage for op in steps.ops)
    gone = {
        "worst": is_of(steps, lambda op: ranks[op.dp, op.stage] in worst),
        "last": is_of(steps, lambda op: op.stage == last),
    }
    lost = float(played.mean() - best.mean())
    shares = {
        name: float(played.mean() - steps.play(np.where(mask[:, None], ideal, steps.moved_s)).mean()) / lost
        if lost > 0
        else None
        for name, mask in gone.items()
    }
    ends = steps.start_s + steps.duration_s
    return Slowdowns(
        slowdown=float((played / best).mean()),
        step_s=float(played.mean()),
        recorded_s=float((ends.max(axis=0) - steps.start_s.min(axis=0)).mean()),
        ideal_s=float(best.mean()),
        by_stage=_by_number(by(lambda op: op.stage)),
        by_dp=_by_number(by(lambda op: op.dp)),
        by_op={str(name): value for name, value in by(lambda op: op.name).items()},
        by_rank=_by_number(by_rank),
        worst_share=shares["worst"],
        last_stage_share=shares["last"],
    )


def _by_number(found: dict[Hashable, float]) -> dict[int, float]:
    return {int(str(name)): found[name] for name in sorted(found, key=lambda name: int(str(name)))}


def ideal_s(steps: Steps) -> Floats:
    """Return the ideal duration of every operation, in every step."""
    ideal = np.empty_like(steps.moved_s)
    for name, places in places_by(steps, lambda op: op.name).items():
        values = steps.moved_s[places]
        ideal[places] = values.mean() if name in COMPUTE else np.median(values)
    return ideal


def fixed_s(steps: Steps, mask: Mask) -> Floats:
    """Return all durations, with these operations as those of their peers."""
    return np.where(mask[:, None], peers_s(steps, mask), steps.moved_s)


def peers_s(steps: Steps, mask: Mask) -> Floats:
    """Return what each operation takes where nothing is to be fixed: at its stage, else at any other."""
    usual = np.empty_like(steps.moved_s)
    by_stage = places_by(steps, lambda op: (op.name, op.stage))
    by_name = places_by(steps, lambda op: op.name)
    for (name, _), places in by_stage.items():
        healthy = [place for place in places if not mask[place]]
        healthy = healthy or [place for place in by_name[name] if not mask[place]]
        usual[places] = np.median(steps.moved_s[healthy or places])
    return usual


def places_by(steps: Steps, part: Callable[[Op], Hashable]) -> dict[Hashable, list[int]]:
    """Return the operations of each part."""
    found: dict[Hashable, list[int]] = {}
    for place, op in enumerate(steps.ops):
        found.setdefault(part(op), []).append(place)
    return found


def is_of(steps: Steps, wanted: Callable[[Op], bool]) -> Mask:
    """Mark some operations."""
    return np.array([wanted(op) for op in steps.ops])
