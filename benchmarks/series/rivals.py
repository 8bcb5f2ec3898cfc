"""Other ways to notice a slow job; each takes step times and returns when it would have said so.

Parameters that the sources leave open are swept by the caller, who reports the best of each: that favours
them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import ruptures  # type: ignore[import-untyped]

from holdfast.detect.eroica import EroicaDetector
from holdfast.detect.steps import StepDetector
from series.score import Report
from series.truth import Floats, Job

Detector = Callable[[Job], list[Report]]

_SKIP = 2
"""Every rival is spared the first steps of a job."""


def ours(job: Job) -> list[Report]:
    """``holdfast detect``, with the work of each step where it is known."""
    return _streamed(StepDetector(), job, job.work)


def ours_without_work(job: Job) -> list[Report]:
    """``holdfast detect``, told nothing but times."""
    return _streamed(StepDetector(), job, None)


def eroica(job: Job) -> list[Report]:
    """EROICA's trigger."""
    return _streamed(EroicaDetector(), job, None)


def _streamed(detector: StepDetector | EroicaDetector, job: Job, work: Floats | None) -> list[Report]:
    reports = []
    for step, duration_s in enumerate(job.durations_s.tolist()):
        for change in detector.update(step, duration_s, None if work is None else float(work[step])):
            if change.direction == "slow":
                reports.append(Report(change.step, change.detected_step))
    return reports


def sliding_window(length: int) -> Detector:
    """FALCON's baseline: the median of a window is 10 % above the median of the last thousand steps."""

    def detect(job: Job) -> list[Report]:
        times = job.durations_s[_SKIP:]
        recent = np.median(np.lib.stride_tricks.sliding_window_view(times, length), axis=1)
        long = _running_median(times, 1000, every=10)[length - 1 :]
        return _rises(recent > 1.1 * long, _SKIP + length - 1, length)

    return detect


def _running_median(times: Floats, length: int, *, every: int) -> Floats:
    found = np.empty(len(times))
    for start in range(0, len(times), every):
        end = start + every
        found[start:end] = np.median(times[max(0, end - length) : end])
    return found


def _rises(is_slow: np.ndarray, offset: int, length: int) -> list[Report]:
    steps = np.flatnonzero(is_slow & ~np.concatenate(([False], is_slow[:-1])))
    return [Report(offset + int(step) - length // 2, offset + int(step)) for step in steps]


def plain_bocd(hazard: float) -> Detector:
    """FALCON's formula without verification: a step is a change if the run length is 0 with 0.9 or more."""

    def detect(job: Job) -> list[Report]:
        values = job.durations_s[_SKIP:] / np.median(job.durations_s[_SKIP : _SKIP + 10])
        return [Report(_SKIP + at, _SKIP + at) for at in _change_points(values, hazard)]

    return detect


_MOST_RUNS = 300


def _change_points(values: Floats, hazard: float) -> list[int]:
    level, kappa0, alpha0, beta0 = 1.0, 0.01, 1.0, 0.02**2
    log_p, count, mean, squares = np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1)
    found = []
    for at, value in enumerate(values.tolist()):
        kappa, alpha = kappa0 + count, alpha0 + count / 2
        shift = mean - level
        center = level + count / kappa * shift
        beta = beta0 + squares / 2 + kappa0 * count / kappa * shift**2 / 2
        spread = 2 * beta * (1 + 1 / kappa)
        gammas = 0.5 * np.log(alpha) - 1 / (8 * alpha) + 1 / (192 * alpha**3)
        density = (
            gammas - 0.5 * np.log(np.pi * spread) - (alpha + 0.5) * np.log1p((value - center) ** 2 / spread)
        )
        # The last entry is a new run, scored by the prior.
        log_p = np.append(log_p[:-1] + np.log1p(-hazard) + density[:-1], np.log(hazard) + density[-1])
        log_p -= np.logaddexp.reduce(log_p)
        is_up = at > 0 and value > mean[int(np.argmax(log_p[:-1]))] if len(log_p) > 1 else False
        if at > 5 and log_p[-1] >= np.log(0.9) and is_up:
            found.append(at)
        step = value - mean
        count = count + 1
        mean = mean + step / count
        squares = squares + step * (value - mean)
        log_p, count, mean, squares = (np.append(a, 0.0) for a in (log_p, count, mean, squares))
        if len(log_p) > _MOST_RUNS:
            keep = np.sort(np.argpartition(log_p[:-1], -_MOST_RUNS)[-_MOST_RUNS:])
            keep = np.append(keep, len(log_p) - 1)
            log_p, count, mean, squares = log_p[keep], count[keep], mean[keep], squares[keep]
        log_p[-1] = -np.inf
    return found


def offline(penalty: float) -> Detector:
    """Ruptures' kernel change points over the whole series at its end, verified as FALCON does."""

    def detect(job: Job) -> list[Report]:
        values = np.log(job.durations_s[_SKIP:])
        noise = np.median(np.abs(np.diff(values))) / 0.954
        search = ruptures.KernelCPD(kernel="linear", min_size=10).fit(values)
        ends = search.predict(pen=penalty * noise**2 * np.log(len(values)))
        starts = [0, *ends[:-1]]
        means = [float(np.exp(values[start:end]).mean()) for start, end in zip(starts, ends, strict=True)]
        rises = [
            start
            for start, before, after in zip(starts[1:], means, means[1:], strict=False)
            if (after - before) / after > 0.10
        ]
        return [Report(_SKIP + start, _SKIP + start) for start in rises]

    return detect


def score_of_medians(threshold: float) -> Detector:
    """NVRx's individual score: the best median of an interval so far over the current one's."""
    interval = 60

    def detect(job: Job) -> list[Report]:
        times = job.durations_s[_SKIP:]
        reports, best, was_slow = [], np.inf, False
        for start in range(0, len(times) - interval + 1, interval):
            median = float(np.median(times[start : start + interval]))
            best = min(best, median)
            is_slow = best / median < threshold
            if is_slow and not was_slow:
                reports.append(Report(_SKIP + start, _SKIP + start + interval - 1))
            was_slow = is_slow
        return reports

    return detect


RIVALS: dict[str, list[tuple[str, Detector]]] = {
    "sliding window": [(f"{length} steps", sliding_window(length)) for length in (5, 10, 20, 30, 50)],
    "plain BOCD": [(f"hazard 1/{round(1 / hazard)}", plain_bocd(hazard)) for hazard in (1e-2, 1e-3)],
    "ruptures, offline": [(f"penalty {penalty:g}", offline(penalty)) for penalty in (3.0, 10.0, 30.0)],
    "EROICA's trigger": [("5 %", eroica)],
    "NVRx-like score": [(f"{threshold:g}", score_of_medians(threshold)) for threshold in (0.7, 0.8, 0.9)],
}
