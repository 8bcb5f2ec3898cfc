"""Which nodes have more of something than the fleet: exact tails, a fleet's rate that bad nodes cannot bend.

Counts of alike nodes are Poisson; where nodes differ, the rate of each is drawn from a gamma distribution and
counts are negative binomial. Both are fitted to the nodes with few counts only, as what is left of a cut
distribution, so that the nodes one looks for neither raise the rate nor widen it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammainc, gammaincc, gammaln

Floats = NDArray[np.float64]

_USUAL = 0.95
"""Share of nodes whose counts the fleet is fitted to."""
_SHAPES = (0.1, 0.2, 0.35, 0.6, 1.0, 1.7, 3.0, 5.0, 10.0)
_GAIN = 2.0
"""By how much log likelihood nodes have to differ before they are taken to."""
_BINS = 40
_PRIOR = 0.5
"""Counts that are added to both sides of a ratio: one count where none is expected says little."""


@dataclass(frozen=True)
class Fleet:
    """What a node of the fleet does."""

    rate: float
    """Counts per unit of exposure."""
    shape: float = math.inf
    """Of the gamma distribution of the nodes' rates; infinite: all nodes are alike."""
    known: float = math.inf
    """Counts that the rate was learnt from: learnt from few, it is itself drawn from a gamma distribution."""

    @property
    def spread(self) -> float:
        """Shape of one gamma distribution with the variance of both."""
        return 1 / (1 / self.shape + 1 / self.known) if min(self.shape, self.known) < math.inf else math.inf

    def tail(self, counts: Floats, exposure: Floats) -> Floats:
        """Return how often a node of the fleet has as many counts or more (mid-p: half of as many)."""
        mean = self.rate * exposure
        if math.isinf(self.spread):
            above = gammainc(counts + 1, mean)
        else:
            above = betainc(counts + 1, self.spread, mean / (self.spread + mean))
        p = above + 0.5 * np.exp(_log_chance(counts, mean, self.spread))
        return np.where(exposure > 0, np.clip(p, 0.0, 1.0), 1.0)

    def times(self, counts: Floats, exposure: Floats) -> Floats:
        """Return how many times the fleet's rate a node has, drawn towards 1 the less is known of it."""
        prior = _PRIOR if math.isinf(self.shape) else max(_PRIOR, self.shape)
        return (counts + prior) / (self.rate * exposure + prior)


def fit_fleet(counts: Floats, exposure: Floats) -> Fleet:
    """Return the rate of a fleet, and whether its nodes differ, from its usual nodes."""
    counts, exposure = counts[exposure > 0], exposure[exposure > 0]
    if counts.sum() == 0:
        return Fleet(rate=0.0)
    # Three counts at least, or nothing tells nodes that differ from those that do not.
    limit = max(2.0, float(np.quantile(counts, _USUAL, method="lower"))) + 1
    cells, means, weights = _cells(counts, exposure, limit)
    start = math.log(counts.sum() / exposure.sum())
    known = float((cells * weights).sum()) + 0.5
    best, alike = Fleet(rate=math.exp(start)), -math.inf
    for shape in (math.inf, *_SHAPES):

        def loss(log_rate: float, shape: float = shape) -> float:
            mean = math.exp(log_rate) * means
            chance = _log_chance(cells, mean, shape) - np.log(np.maximum(_up_to(limit, mean, shape), 1e-300))
            # Half a count more than was seen (Jeffreys): a fleet without a count has a rate all the same.
            return -float((weights * chance).sum()) - 0.5 * log_rate

        log_rate = _minimum(loss, start - 4.0, start + 1.0)
        likelihood = -loss(log_rate)
        if likelihood > alike + (0.0 if math.isinf(shape) else _GAIN if math.isinf(best.shape) else 0.0):
            best, alike = Fleet(rate=math.exp(log_rate), shape=shape, known=known), likelihood
    return best


def binomial_tail(counts: Floats, trials: Floats, share: float) -> Floats:
    """Return how often as many of the trials or more come out, at the fleet's share (mid-p)."""
    share = min(max(share, 1e-12), 1 - 1e-12)
    # The incomplete beta function has no parameter 0; there, nothing is above.
    above = np.where(counts < trials, betainc(counts + 1, np.maximum(trials - counts, 1), share), 0.0)
    log_chance = (
        gammaln(trials + 1)
        - gammaln(counts + 1)
        - gammaln(np.maximum(trials - counts, 0) + 1)
        + counts * math.log(share)
        + np.maximum(trials - counts, 0) * math.log1p(-share)
    )
    return np.where(trials > 0, np.clip(above + 0.5 * np.exp(log_chance), 0.0, 1.0), 1.0)


def combine(tails: Floats, weights: Floats) -> Floats:
    """Return one p for each row of many that may depend on each other (Cauchy; Liu and Xie 2020)."""
    # At 1 the tangent is minus infinity: one test that sees nothing at all must not silence the others.
    bounded = np.clip(tails, 1e-15, 0.99)
    statistic = (weights / weights.sum() * np.tan((0.5 - bounded) * np.pi)).sum(axis=1)
    # Far out the arc tangent has no digits left, and is the reciprocal.
    near = 0.5 - np.arctan(statistic) / np.pi
    return np.asarray(np.where(statistic > 1e6, 1 / (np.pi * np.maximum(statistic, 1.0)), near))


def false_discovery(p: Floats) -> Floats:
    """Return for each p the smallest rate of false discoveries at which it is one (Benjamini-Hochberg)."""
    order = np.argsort(p, kind="stable")
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    q = np.empty_like(p)
    q[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return q


def _log_chance(counts: Floats, mean: Floats, shape: float) -> Floats:
    """Return the logarithm of the chance of exactly so many counts."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if math.isinf(shape):
            found = counts * np.log(mean) - mean - gammaln(counts + 1)
        else:
            ways = gammaln(counts + shape) - gammaln(shape) - gammaln(counts + 1)
            found = ways - shape * np.log1p(mean / shape) + counts * np.log(mean / (shape + mean))
    return np.where(mean > 0, found, np.where(counts > 0, -np.inf, 0.0))


def _up_to(limit: float, mean: Floats, shape: float) -> Floats:
    """Return the chance of at most so many counts."""
    whole = math.floor(limit)
    if math.isinf(shape):
        return np.asarray(gammaincc(whole + 1, mean))
    return np.asarray(betainc(shape, whole + 1, shape / (shape + mean)))


def _cells(counts: Floats, exposure: Floats, limit: float) -> tuple[Floats, Floats, Floats]:
    """Return counts, mean exposure and number of alike usual nodes, which are far fewer than the nodes."""
    usual = counts <= limit
    counts, exposure = counts[usual], exposure[usual]
    edges = np.unique(np.quantile(exposure, np.linspace(0, 1, _BINS + 1)[1:-1]))
    place = np.searchsorted(edges, exposure)
    keys, inverse = np.unique(np.stack([place, counts], axis=1), axis=0, return_inverse=True)
    inverse = inverse.ravel()
    weights = np.bincount(inverse).astype(float)
    return keys[:, 1], np.bincount(inverse, exposure) / weights, weights


def _minimum(loss: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function with one valley is lowest (golden section)."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = loss(left), loss(right)
    while high - low > 1e-4:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = loss(right)
    return (low + high) / 2
