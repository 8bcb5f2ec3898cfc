"""Seeded incident histories: what deciding costs, over what it costs somebody who knew the end."""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import common
from holdfast.mitigate.decide import Mitigator
from holdfast.mitigate.prices import Prices
from holdfast.simulate.hindsight import clairvoyant_s
from holdfast.simulate.incidents import History, draw_history
from holdfast.simulate.mitigated import Responder, play
from holdfast.simulate.responders import AtOnce, FalconCoded, FalconPublished, Never

LOOK_S = 0.02
"""A decision comes late by at most this, or by half a percent of what has passed."""
_OURS = "holdfast"
_COMPARED = 500
"""How many histories, the first ones, the others live through too: they take most of the time."""
MAKERS: dict[str, Callable[[History], Responder]] = {
    _OURS: lambda history: Mitigator(history.model(), Prices(history.prices)),
    "never act": lambda history: Never(history.model(), history.prices),
    "act at once": lambda history: AtOnce(history.model(), history.prices),
    "FALCON, published": lambda history: FalconPublished(history.model(), history.prices),
    "FALCON, coded": lambda history: FalconCoded(history.model(), history.prices),
}
_AT_CHANGES = frozenset({"never act"})
"""Who never decides need not look often."""


class Played(NamedTuple):
    """What a history cost whom."""

    seed: int
    best_s: float
    """Somebody who knew all of it beforehand."""
    informed_s: float
    """Somebody who knew how long everything lasts, and nothing of what had not begun."""
    costs: dict[str, float]


def single(options: argparse.Namespace) -> common.Part:
    """One incident each, known at once, prices known: twice the clairvoyant's cost is the limit."""
    rows = _rows(_play_all(options, troubles=1))
    worst = rows[0]["worst"]
    return common.Part(rows, [_looks(), _delay_note(options)], is_good=worst <= 2.0 * (1 + 0.015))


def compound(options: argparse.Namespace) -> common.Part:
    """Two to six incidents each, which may overlap."""
    rows = _rows(_play_all(options, troubles=0))
    notes = [
        "ratio: to what it costs who knows all beforehand, and arranges the job for links that will be slow",
        "informed: to what it costs who knows how long everything lasts, but not what is next",
    ]
    return common.Part(rows, [_looks(), *notes])


def _looks() -> str:
    return f"looked at every {LOOK_S} s, later every half percent of the time since something changed"


def _play_all(options: argparse.Namespace, *, troubles: int) -> list[Played]:
    seeds = range(options.seed, options.seed + options.histories)
    with common.progress() as bar, ProcessPoolExecutor(os.cpu_count()) as pool:
        compared = [seed < options.seed + _COMPARED for seed in seeds]
        work = pool.map(_play_one, seeds, [troubles] * len(seeds), compared, chunksize=20)
        return list(bar.track(work, total=len(seeds), description="histories"))


def _play_one(seed: int, troubles: int, is_compared: bool) -> Played:
    """Let deciders live through one history; the checkers raise if anything is not as it must be."""
    history = draw_history(seed, troubles=troubles or 2 + seed % 5)
    costs = {
        name: play(history, make(history), look_s=float("inf") if name in _AT_CHANGES else LOOK_S).lost_s
        for name, make in MAKERS.items()
        if is_compared or name == _OURS
    }
    return Played(seed, clairvoyant_s(history), clairvoyant_s(history, is_ready=False), costs)


def _rows(played: list[Played]) -> list[dict[str, Any]]:
    rows = []
    for name in MAKERS:
        mine = [each for each in played if name in each.costs and each.best_s > 0]
        ratios = [(each.costs[name] / each.best_s, each.seed) for each in mine]
        informed = [each.costs[name] / each.informed_s for each in mine]
        worst, seed = max(ratios)
        rows.append(
            {
                "decides": name,
                "cost of all": sum(each.costs[name] for each in mine) / sum(each.best_s for each in mine),
                "mean ratio": statistics.mean(ratio for ratio, _ in ratios),
                "median ratio": statistics.median(ratio for ratio, _ in ratios),
                "worst": worst,
                "its seed": seed,
                "mean, informed": statistics.mean(informed),
                "worst, informed": max(informed),
                "histories": len(ratios),
            }
        )
    return rows


def _delay_note(options: argparse.Namespace) -> str:
    """Say what it costs that incidents are known later, apart from what is decided."""
    shares = []
    for seed in range(options.seed, options.seed + min(200, options.histories)):
        history = draw_history(seed, troubles=1)
        outcome = play(history, MAKERS["holdfast"](history), delay_s=10.56, look_s=LOOK_S)
        if outcome.lost_s > 0:
            shares.append(outcome.unnoticed_s / outcome.lost_s)
    return (
        "known only 10.56 s after onset and relief (what GREYHOUND took): of all that is lost, "
        f"{100 * statistics.mean(shares):.0f} % is lost before anybody knows (mean of {len(shares)})"
    )
