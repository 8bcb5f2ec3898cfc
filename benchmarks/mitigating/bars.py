"""Does the simulated world look like the published one? FALCON's bars for S2 and S3, and what it gives.

From each bar of a slow job the fault is taken, and the mitigated one is predicted. Figures were digitised
from FALCON's figures 13, 15 and 16, or are its notebook's output.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any, NamedTuple

import common
from holdfast.mitigate.condition import Arrangement, Condition, SlowLink, make_speeds
from holdfast.mitigate.model import Replicas, Shape


class Bar(NamedTuple):
    """Times of a step: under the fault, with it worked around, and healthy."""

    slow: float
    mitigated: float
    healthy: float


S2 = {
    2: (Bar(3.10, 2.71, 2.30), Bar(3.30, 2.67, 2.18), Bar(3.96, 2.93, 2.29)),
    4: (Bar(1.55, 1.30, 1.20), Bar(1.73, 1.33, 1.22), Bar(1.95, 1.31, 1.18)),
    8: (Bar(0.72, 0.61, 0.55), Bar(0.82, 0.67, 0.56), Bar(0.94, 0.63, 0.55)),
}
"""By data-parallel degree; one slow GPU: weak, medium, severe."""
MANY = (Bar(1.23, 0.75, 0.64), Bar(1.21, 0.84, 0.64), Bar(1.23, 0.95, 0.64), Bar(1.20, 1.20, 0.64))
"""Of four replicas one, two, three, all are slow."""
S3 = {
    4: (Bar(650.1, 602.2, 578.6), Bar(705.4, 636.7, 576.5), Bar(939.2, 773.2, 572.0)),
    8: (Bar(838.2, 802.4, 604.0), Bar(952.2, 856.2, 605.2), Bar(989.0, 869.1, 607.3)),
}
"""By number of stages; a congested link moved from gradients to activations."""
GATHERED = (Bar(910.6, 767.9, 575.5), Bar(975.6, 773.2, 575.5), Bar(1085.2, 975.1, 575.5))
"""One, two, three stages of four have congested links."""
_MICROBATCHES = 16
"""Of a replica: the published set-up does not say. Chosen once, for all bars."""


def measure(options: argparse.Namespace) -> common.Part:
    """Print every bar beside its prediction."""
    rows = [_split(dp, bar) for dp, bars in S2.items() for bar in bars]
    rows += [_many(count, bar) for count, bar in enumerate(MANY, start=1)]
    rows += [_moved(pp, bar) for pp, bars in S3.items() for bar in bars]
    rows += [_gathered(count, bar) for count, bar in enumerate(GATHERED, start=1)]
    errors = {kind: [abs(row["error_pct"]) for row in rows if row["kind"] == kind] for kind in ("S2", "S3")}
    notes = [
        f"{kind}: mean error {statistics.mean(each):.1f} %, largest {max(each):.1f} %"
        for kind, each in errors.items()
    ]
    return common.Part(rows, notes)


def _split(dp: int, bar: Bar) -> dict[str, Any]:
    model = Replicas(Shape(dp=dp, microbatches=_MICROBATCHES))
    condition = Condition(speeds=((0, bar.healthy / bar.slow),))
    found = model.slowdown(condition, Arrangement(reckoned=condition.speeds))
    return _row("S2", f"{dp} replicas, one slow", bar, found)


def _many(count: int, bar: Bar) -> dict[str, Any]:
    model = Replicas(Shape(dp=4, microbatches=_MICROBATCHES))
    condition = Condition(speeds=make_speeds(dict.fromkeys(range(count), bar.healthy / bar.slow)))
    found = model.slowdown(condition, Arrangement(reckoned=condition.speeds))
    return _row("S2", f"4 replicas, {count} slow", bar, found)


def _moved(pp: int, bar: Bar) -> dict[str, Any]:
    """A link of the first stage's gradients becomes one between two stages, as FALCON moves it."""
    # How much travels between stages is one number per shape: what the medium bar says.
    medium = S3[pp][1]
    data_share = 0.1
    part = (medium.mitigated / medium.healthy - 1) / (medium.slow / medium.healthy - 1)
    shape = Shape(
        dp=2,
        pp=pp,
        microbatches=_MICROBATCHES,
        data_share=data_share,
        stage_share=part * data_share * (pp - 1),
    )
    model = Replicas(shape)
    factor = 1 + (bar.slow / bar.healthy - 1) / data_share
    condition = Condition(links=(SlowLink(0, pp, factor),))
    moved = Arrangement().swapped(0, pp + 1, shape.places)
    return _row("S3", f"{pp} stages, link moved", bar, model.slowdown(condition, moved))


def _gathered(count: int, bar: Bar) -> dict[str, Any]:
    """Links of several stages: each further stage adds a part of what the first one costs."""
    first, second = GATHERED[0], GATHERED[1]
    data_share = 0.1
    excess = first.slow / first.healthy - 1
    pile_up = (second.slow - first.slow) / first.healthy / excess
    model = Replicas(Shape(dp=4, pp=4, microbatches=_MICROBATCHES, data_share=data_share, pile_up=pile_up))
    links = tuple(SlowLink(stage, 4 + stage, 1 + excess / data_share) for stage in range(count))
    slow = model.slowdown(Condition(links=links), Arrangement())
    return _row("S3", f"{count} of 4 stages congested", bar._replace(mitigated=bar.slow), slow)


def _row(kind: str, name: str, bar: Bar, predicted: float) -> dict[str, Any]:
    published = bar.mitigated / bar.healthy
    return {
        "kind": kind,
        "what": name,
        "slow": bar.slow / bar.healthy,
        "published": published,
        "simulated": predicted,
        "error_pct": 100 * (predicted / published - 1),
    }
