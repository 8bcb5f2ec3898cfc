"""FALCON's 64-GPU and 256-GPU schedules in simulation: how much of the slowdown is removed, by the clock."""

from __future__ import annotations

import argparse
from typing import Any

import common
from holdfast.mitigate.decide import Mitigator
from holdfast.mitigate.prices import Deed, Prices
from holdfast.simulate.incidents import History
from holdfast.simulate.mitigated import Outcome, Responder, play
from holdfast.simulate.responders import FalconCoded, FalconPublished, Never
from mitigating.published import GPUS_64, GPUS_256, Published, history_of

_DELAY_S = 10.56
"""From onset to a name: what GREYHOUND measured on 256 GPUs. Charged to everybody, at relief too."""
_FALCON: dict[Deed, float] = {"replan": 2.1, "exchange": 60.0, "restart": 600.0}
"""Its own prices: half a pick-up interval, a minute's pause, a checkpoint and a restart."""
_OURS: dict[Deed, float] = {"replan": 2.1, "exchange": 5.0, "restart": 600.0}
"""The same re-plan. FALCON's in-memory exchange of 38 GB per GPU takes 30 s, of which 25 to 30 are to start
processes anew (3 s to transfer); nothing of ours starts any."""


def measure(options: argparse.Namespace) -> common.Part:
    """Replay both schedules with every decider."""
    rows = []
    for name, published in (("64 GPUs", GPUS_64), ("256 GPUs", GPUS_256)):
        rows += _replay(name, published)
    notes = [
        f"detection delay {_DELAY_S} s at onset and relief; pauses count as time in which nothing is trained",
        "re-routed: micro-batches go to any worker of a stage (holdfast.Pipeline); whole replicas: any job",
    ]
    good = [row["removed pct"] >= 60 for row in rows if row["decides"].startswith("holdfast")]
    return common.Part(rows, notes, is_good=all(good))


def _replay(name: str, published: Published) -> list[dict[str, Any]]:
    theirs = history_of(published, _FALCON, is_stages=False)
    replicas = history_of(published, _OURS, is_stages=False)
    stages = history_of(published, _OURS, is_stages=True)
    deciders: list[tuple[str, History, Responder]] = [
        ("never act", theirs, Never(theirs.model(), theirs.prices)),
        ("FALCON, published", theirs, FalconPublished(theirs.model(), theirs.prices)),
        ("FALCON, coded", theirs, FalconCoded(theirs.model(), theirs.prices)),
        ("holdfast, whole replicas", replicas, Mitigator(replicas.model(), Prices(replicas.prices))),
        ("holdfast, re-routed", stages, Mitigator(stages.model(), Prices(stages.prices))),
    ]
    outcomes = [(who, play(history, by, delay_s=_DELAY_S)) for who, history, by in deciders]
    worst = outcomes[0][1]
    return [_row(name, published, who, outcome, worst) for who, outcome in outcomes]


def _row(name: str, published: Published, who: str, outcome: Outcome, worst: Outcome) -> dict[str, Any]:
    per_minute = (1 - outcome.lost_s / published.end_s) * 60 / published.healthy_s
    return {
        "schedule": name,
        "decides": who,
        "iterations per min": per_minute,
        "healthy": 60 / published.healthy_s,
        "removed pct": 100 * (1 - outcome.lost_s / worst.lost_s),
        "paused s": outcome.paused_s,
        "acts": len(outcome.acts),
        "unnoticed s": outcome.unnoticed_s,
    }
