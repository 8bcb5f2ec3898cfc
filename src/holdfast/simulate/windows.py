"""Outcomes as a person wants to see them: throughput averaged over windows, workers over time."""

from __future__ import annotations

from holdfast.simulate.fitting import Fitted
from holdfast.simulate.run import Outcome

Points = tuple[tuple[float, float], ...]
"""A time in seconds and the value from there on."""


def average_windows(outcome: Outcome, windows: int) -> Points:
    """Return the mean pace of every window, pauses included; the last point closes the last window.

    Work that is done again later counts when it is done, here as on the screens of those who watch a job.
    """
    width_s = outcome.duration_s / windows
    totals = [0.0] * windows
    ends = [at_s for at_s, _ in outcome.series[1:]] + [outcome.duration_s]
    for (start_s, pace), end_s in zip(outcome.series, ends, strict=True):
        for index in range(int(start_s / width_s), windows):
            overlap_s = min(end_s, (index + 1) * width_s) - max(start_s, index * width_s)
            if overlap_s <= 0 and index * width_s >= end_s:
                break
            totals[index] += pace * max(0.0, overlap_s)
    points = [(index * width_s, total / width_s) for index, total in enumerate(totals)]
    return (*points, (outcome.duration_s, points[-1][1]))


def live_workers(fitted: Fitted) -> Points:
    """Return how many workers' places are taken, from each moment on."""
    count = len(fitted.live)
    points = [(0.0, float(count))]
    for change in fitted.changes:
        count += len(change.came) - len(change.left)
        points.append((change.at_s, float(count)))
    return (*points, (fitted.duration_s, float(count)))
