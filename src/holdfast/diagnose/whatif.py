"""What a step would take if something in it were as it should be: the price of a worker, stage or operation.

*Ideal* is the published one: of compute the mean over all workers, steps and micro-batches, of transfers the
median. The slowdown of a part is what is left if all but that part were ideal. *Fixed* is the other way
round: all as it was, and the part as its peers are.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.diagnose.replay import BACKWARD, FORWARD, Steps
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
    whose = np.array([ranks[op.dp, op.stage] for op in steps.ops])

    def by(parts: npt.NDArray[Any]) -> dict[Any, float]:
        """Return what is left of the slowdown if all but one part is ideal, for each part."""
        left = {}
        for part in np.unique(parts):
            only = np.where((parts == part)[:, None], steps.moved_s, ideal)
            left[part.item()] = float((steps.play(only) / best).mean())
        return left

    def gone(mask: Mask) -> float | None:
        """Return the share of the slowdown that goes if these are ideal."""
        lost = float(played.mean() - best.mean())
        without = steps.play(np.where(mask[:, None], ideal, steps.moved_s))
        return float(played.mean() - without.mean()) / lost if lost > 0 else None

    by_rank = by(whose)
    worst = sorted(by_rank, key=lambda rank: -by_rank[rank])[: max(1, round(_WORST * len(by_rank)))]
    ends = steps.start_s + steps.duration_s
    return Slowdowns(
        slowdown=float((played / best).mean()),
        step_s=float(played.mean()),
        recorded_s=float((ends.max(axis=0) - steps.start_s.min(axis=0)).mean()),
        ideal_s=float(best.mean()),
        by_stage=by(steps.stages),
        by_dp=by(steps.dps),
        by_op=by(steps.names),
        by_rank=by_rank,
        worst_share=gone(np.isin(whose, worst)),
        last_stage_share=gone(steps.stages == steps.stages.max()),
    )


def ideal_s(steps: Steps) -> Floats:
    """Return the ideal duration of every operation, in every step."""
    ideal = np.empty_like(steps.moved_s)
    for name in np.unique(steps.names):
        mine = steps.names == name
        values = steps.moved_s[mine]
        ideal[mine] = values.mean() if name in COMPUTE else np.median(values)
    return ideal


def fixed_s(steps: Steps, mask: Mask) -> Floats:
    """Return all durations, with these operations as those of their peers: at their stage, else at any."""
    fixed = steps.moved_s.copy()
    names, stages = steps.names, steps.stages
    for name in np.unique(names[mask]):
        alike = names == name
        for stage in np.unique(stages[mask & alike]):
            healthy = alike & (stages == stage) & ~mask
            healthy = healthy if healthy.any() else alike & ~mask
            if healthy.any():
                fixed[mask & alike & (stages == stage)] = np.median(steps.moved_s[healthy])
    return fixed
