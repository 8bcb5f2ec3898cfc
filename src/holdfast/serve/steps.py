"""The figure of a series: step times, the healthy level, and the slow episodes behind them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from holdfast.detect.examine import Examined
from holdfast.findings import Episode
from holdfast.serve.chart import Chart, Panel, Series, draw, page
from holdfast.telemetry import StepTime

MOST_POINTS = 3000
"""Drawn per attempt."""
_ROOM = 1.25
_QUANTILE = 0.995


def draw_steps(attempts: Sequence[Examined], name: str) -> str:
    """Return the figure as SVG; attempts follow each other, and steps far above all others are cut off."""
    highest_s = _highest_s(attempts)
    series: list[Series] = []
    offset = 0
    for number, attempt in enumerate(attempts, start=1):
        shift = offset - attempt.steps[0].step if len(attempts) > 1 else 0
        lines = _attempt(attempt, shift, highest_s, f" {number}" if len(attempts) > 1 else "")
        # Names beside the lines of all attempts would not fit.
        is_last = number == len(attempts)
        series += [msgspec.structs.replace(line, is_labelled=is_last) for line in lines]
        offset += attempt.steps[-1].step - attempt.steps[0].step + 1
    count = sum(len(attempt.episodes) for attempt in attempts)
    told = f"{count} slow episode{'' if count == 1 else 's'}, grey behind the line"
    return draw(
        Chart(
            title="Step times",
            subtitle=(name, told if count else "never slow"),
            x_label="step" if len(attempts) == 1 else "step, attempts after each other",
            panels=(Panel(y_label="seconds", series=tuple(series), height=360),),
        )
    )


def steps_page(drawing: str, name: str) -> str:
    """Return a page with the figure."""
    return page(f"Step times of {name}", [drawing])


def _attempt(attempt: Examined, offset: int, highest_s: float, suffix: str) -> list[Series]:
    steps, healthy_s = attempt.steps, attempt.healthy_s
    first, last = float(steps[0].step + offset), float(steps[-1].step + offset)
    found = []
    if attempt.episodes:
        shade = _shade(attempt.episodes, offset, (first, last), highest_s)
        found.append(Series(name=f"slow{suffix}", points=shade, is_area=True))
    points = tuple((float(step + offset), min(value, highest_s)) for step, value in _thinned(steps))
    found.append(Series(name=f"step time{suffix}", points=points, colour=4))
    if healthy_s is not None:
        level = ((first, healthy_s), (last, healthy_s))
        found.append(Series(name=f"healthy{suffix} {healthy_s:.3g} s", points=level, is_reference=True))
    return found


def _shade(
    episodes: Sequence[Episode], offset: int, ends: tuple[float, float], highest_s: float
) -> tuple[tuple[float, float], ...]:
    """Return the outline of all episodes: at the top while there is one, at the bottom otherwise."""
    first, last = ends
    points = [(first, 0.0)]
    for each in episodes:
        start, end = float(each.start + offset), last if each.end is None else float(each.end + offset)
        points += [(start, 0.0), (start, highest_s), (end, highest_s), (end, 0.0)]
    return (*points, (last, 0.0))


def _highest_s(attempts: Sequence[Examined]) -> float:
    times = [step.duration_s for attempt in attempts for step in attempt.steps]
    levels = [
        episode.slowdown * attempt.healthy_s
        for attempt in attempts
        for episode in attempt.episodes
        if attempt.healthy_s is not None
    ]
    return max(float(np.quantile(times, _QUANTILE)), *levels, 0.0) * _ROOM


def _thinned(steps: Sequence[StepTime]) -> list[tuple[int, float]]:
    """Return all steps, or of each few the shortest and the longest: neither level nor extremes are lost."""
    every = -(-len(steps) // MOST_POINTS)
    if every == 1:
        return [(each.step, each.duration_s) for each in steps]
    found = []
    for start in range(0, len(steps), 2 * every):
        times = [each.duration_s for each in steps[start : start + 2 * every]]
        found += [(steps[start].step, min(times)), (steps[start].step, max(times))]
    return found
