"""What happens when nothing is wrong, and when the detector lies."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from typing import Any

import common
from holdfast.mitigate.condition import Arrangement, Condition
from holdfast.mitigate.decide import Mitigator
from holdfast.mitigate.look import Decision, Look
from holdfast.mitigate.model import Model, Replicas, Shape, Stages
from holdfast.mitigate.prices import Deed, Prices
from holdfast.simulate.mitigated import price_of

_HOURS = 100
_HEALTHY_S = 1.0
_LOOK_STEPS = 10
_NOISE = 0.05
_PRICES: dict[Deed, float] = {"replan": 1.0, "exchange": 5.0, "restart": 300.0}
_MODELS: dict[str, Model] = {
    "8 replicas": Replicas(Shape(dp=8, microbatches=8, data_share=0.1)),
    "2 x 4, re-routed": Stages(Shape(dp=2, pp=4, microbatches=8, data_share=0.1, stage_share=0.02)),
}


def healthy(options: argparse.Namespace) -> common.Part:
    """Healthy jobs with noise in their steps."""
    rows = []
    for name, model in _MODELS.items():
        said = (Condition() for _ in range(int(_HOURS * 3600 / _LOOK_STEPS)))
        lost_s, acts = _live(model, said, options.seed)
        rows.append({"job": name, "hours": _HOURS, "acts": acts, "lost to us, s": lost_s})
    return common.Part(
        rows, [f"step times vary by {_NOISE:.0%}"], is_good=all(not row["acts"] for row in rows)
    )


def liars(options: argparse.Namespace) -> common.Part:
    """Healthy jobs of which a detector says otherwise for 10 hours."""
    rows: list[dict[str, Any]] = []
    count = int(10 * 3600 / _LOOK_STEPS)
    for name, model in _MODELS.items():
        for lie, said in _lies(model, count, options.seed).items():
            lost_s, acts = _live(model, said, options.seed)
            rows.append(
                {
                    "job": name,
                    "lie": lie,
                    "acts": acts,
                    "lost s": lost_s,
                    "lost pct": 100 * lost_s / (count * _LOOK_STEPS * _HEALTHY_S),
                }
            )
    note = "the job is healthy; everything lost is lost to what was done about nothing"
    return common.Part(rows, [note], is_good=max(row["lost pct"] for row in rows) < 5)


def _lies(model: Model, count: int, seed: int) -> dict[str, Iterator[Condition]]:
    rng = random.Random(seed)
    slow = Condition(speeds=((1, 0.5),))

    def anybody() -> Condition:
        return Condition(speeds=((rng.randrange(model.shape.places), 0.5),))

    return {
        "always the same wrong rank": (slow for _ in range(count)),
        "another rank every minute": _held(anybody, count, 6),
        "flaps every minute": (slow if number // 6 % 2 else Condition() for number in range(count)),
        "flaps every ten minutes": (slow if number // 60 % 2 else Condition() for number in range(count)),
    }


def _held(draw: Any, count: int, looks: int) -> Iterator[Condition]:
    condition = Condition()
    for number in range(count):
        if number % looks == 0:
            condition = draw()
        yield condition


def _live(model: Model, said: Iterator[Condition], seed: int) -> tuple[float, int]:
    """Let a healthy job live with what is said of it; return what it lost, and how many acts."""
    rng = random.Random(seed)
    mitigator = Mitigator(model, Prices(_PRICES))
    arrangement, lost_s, acts = Arrangement(), 0.0, 0
    for number, condition in enumerate(said):
        slowdown = model.slowdown(Condition(), arrangement)
        lost_s += _LOOK_STEPS * _HEALTHY_S * (slowdown - 1)
        look = Look(
            step=number * _LOOK_STEPS,
            steps=_LOOK_STEPS,
            seconds=_LOOK_STEPS * _HEALTHY_S * slowdown * rng.gauss(1.0, _NOISE / _LOOK_STEPS**0.5),
            healthy_s=_HEALTHY_S,
            condition=condition.without(arrangement.without),
        )
        decision: Decision | None = mitigator.see(look)
        if decision is not None and not decision.is_dry:
            deed = price_of(arrangement, decision.arrangement)
            pause_s = _PRICES[deed] if deed is not None else 0.0
            arrangement, lost_s, acts = decision.arrangement, lost_s + pause_s, acts + 1
            mitigator.done(pause_s)
    return lost_s, acts
