"""Ways to train on while workers come and go: ours, our peers', and two ideals, one small file each."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import InputError
from holdfast.simulate.models import GPT3_6_7B, Model
from holdfast.simulate.periods import Periods
from holdfast.simulate.strategies.bamboo import Bamboo
from holdfast.simulate.strategies.base import Strategy
from holdfast.simulate.strategies.checkpoint_restart import CheckpointRestart
from holdfast.simulate.strategies.drop_pipeline import DropPipeline
from holdfast.simulate.strategies.holdfast import Holdfast
from holdfast.simulate.strategies.ideal import FaultFree, FaultScaled
from holdfast.simulate.strategies.oobleck import Oobleck, OobleckMeasured
from holdfast.simulate.strategies.recycle import ReCycle
from holdfast.simulate.strategies.varuna import Varuna

NAMES = (
    "holdfast",
    "recycle",
    "oobleck",
    "oobleck-measured",
    "bamboo",
    "varuna",
    "drop-pipeline",
    "checkpoint-restart",
    "fault-scaled",
    "fault-free",
)


def why_not(name: str, model: Model) -> str | None:
    """Return why there are no figures of a strategy for a model, None if there are."""
    if name not in NAMES:
        raise InputError(f"there is no strategy {name!r}, expected one of {', '.join(NAMES)}")
    if name == "bamboo" and model.bamboo is None:
        return "out of memory"
    if name == "oobleck-measured" and model is not GPT3_6_7B:
        return "measured for GPT-3 6.7B only"
    return None


def make_strategy(name: str, model: Model, periods: Periods, mtbf_s: float | None) -> Strategy:
    """Return a fresh strategy; ``mtbf_s`` is what checkpoint-restart is told about the future."""
    reason = why_not(name, model)
    if reason is not None:
        raise InputError(f"{name} has no figures for {model.title}: {reason}")
    if name == "bamboo" and model.bamboo is not None:
        return Bamboo(model, model.bamboo)
    if name == "checkpoint-restart":
        return CheckpointRestart(model, periods, mtbf_s)
    if name in ("holdfast", "recycle"):
        return Holdfast(model, periods) if name == "holdfast" else ReCycle(model, periods)
    plain: dict[str, Callable[[Model], Strategy]] = {
        "oobleck": Oobleck,
        "oobleck-measured": OobleckMeasured,
        "varuna": Varuna,
        "drop-pipeline": DropPipeline,
        "fault-scaled": FaultScaled,
        "fault-free": FaultFree,
    }
    return plain[name](model)
