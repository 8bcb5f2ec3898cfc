"""The length of a step, in a stream of collective calls of which only kind and time are known.

FALCON's way, by the autocorrelation of the kinds, with two differences. The estimator is unbiased: a few
steps are enough, where the biased one needs twenty to come near 1. And a period must hold for *every* kind
of call that comes regularly: "all-gather, reduce-scatter" sixty times and then one all-reduce has a period of
121 calls, though a lag of 2 fits 98 % of them.

What cannot be told from the stream alone: an evaluation that comes every so many steps without fail is a part
of the cycle, and then so is the period.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.telemetry import StepTime

Ints = npt.NDArray[np.int64]

LEAST_FIT = 0.8
"""Of the calls, and of those of each kind, that are the same one period later. FALCON asks for 0.95 of all
and of nothing else: that lets parts of a step pass, and stumbles over evaluations."""
MOST_LAGS = 5000
LEAST_STEPS = 3
"""So many must be seen."""
_IRREGULAR = 0.25
"""Gaps between calls of a kind that vary by more than this come of something besides training."""


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern of calls that repeats: one step."""

    length: int
    """In calls."""
    offset: int
    """Of the first call from which on it repeats exactly."""


def find_period(kinds: Sequence[Hashable]) -> Period | None:
    """Return the shortest pattern that all kinds of calls repeat; None: there is none."""
    codes = _codes(kinds)
    most = min(MOST_LAGS, len(codes) // LEAST_STEPS)
    fits = _fits(codes, most)
    regular = [code for code in range(int(codes.max(initial=-1)) + 1) if _is_regular(codes, code)]
    for lag in range(1, most + 1):
        if fits[lag] >= LEAST_FIT and _fits_every(codes, lag, regular):
            offset = _first_repeat(codes, lag)
            if offset is not None:
                return Period(length=lag, offset=offset)
    return None


def step_times(kinds: Sequence[Hashable], times_s: Sequence[float]) -> list[StepTime]:
    """Return how long steps took, from a call to the same call one period later; broken ones are left out."""
    period = find_period(kinds)
    if period is None:
        return []
    codes = _codes(kinds)
    pattern = codes[period.offset : period.offset + period.length]
    steps: list[StepTime] = []
    at = period.offset
    while at + period.length < len(codes):
        after = at + period.length
        if np.array_equal(codes[at:after], pattern) and codes[after] == pattern[0]:
            duration_s = times_s[after] - times_s[at]
            if duration_s > 0:
                steps.append(StepTime(step=len(steps), duration_s=duration_s))
            at = after
        else:
            at += 1
    return steps


def _codes(kinds: Sequence[Hashable]) -> Ints:
    known: dict[Hashable, int] = {}
    return np.fromiter((known.setdefault(kind, len(known)) for kind in kinds), np.int64, len(kinds))


def _fits(codes: Ints, most: int) -> npt.NDArray[np.float64]:
    """Return, for each lag, which share of calls is of the same kind that much later."""
    size = 1 << int(2 * max(1, len(codes)) - 1).bit_length()
    matches = np.zeros(most + 1)
    for code in range(int(codes.max(initial=-1)) + 1):
        spectrum = np.fft.rfft(codes == code, size)
        matches += np.fft.irfft(spectrum * spectrum.conj(), size)[: most + 1]
    return matches / np.maximum(1, len(codes) - np.arange(most + 1))


def _is_regular(codes: Ints, code: int) -> bool:
    """Say whether a kind of call comes all the time, and in bursts at even distances."""
    places = np.flatnonzero(codes == code)
    if len(places) < LEAST_STEPS or 2 * (places[-1] - places[0]) < len(codes):
        return False
    gaps = np.diff(places)
    # Calls close together are one burst; what counts is how far bursts lie apart.
    apart = gaps[gaps >= np.sqrt(float(gaps.min()) * float(gaps.max()))]
    return bool(apart.std() <= _IRREGULAR * apart.mean())


def _fits_every(codes: Ints, lag: int, kinds: Sequence[int]) -> bool:
    same = codes[:-lag] == codes[lag:]
    return all(same[codes[:-lag] == kind].mean() >= LEAST_FIT for kind in kinds if kind in codes[:-lag])


def _first_repeat(codes: Ints, lag: int) -> int | None:
    """Return the first call from which on the pattern stands twice in a row, call by call."""
    same = np.concatenate(([0], np.cumsum(codes[:-lag] == codes[lag:])))
    whole = np.flatnonzero(same[lag:] - same[:-lag] == lag)
    return int(whole[0]) if len(whole) else None
