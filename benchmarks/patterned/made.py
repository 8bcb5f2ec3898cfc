"""Patterns of many workers, with roles, noise that neighbours share, workers that are missing, and a fault.

A quarter of the workers are of another role, as a last stage is, with other shares. Neighbours on a host and
in a group share part of their noise. All workers of a job end a step together: what a guilty one takes
longer, the others spend in a collective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.diagnose.patterns import Patterns
from holdfast.observe.kineto import Kind

FAULTS = ("healthy", "throttled", "stalled", "copies", "nic", "group", "uneven", "storage")
_KINDS: tuple[tuple[Kind, int, float], ...] = (
    ("compute", 10, 0.62),
    ("memory", 2, 0.02),
    ("collective", 4, 0.22),
    ("python", 4, 0.016),
)
"""How many functions of each kind, and their share of the time together."""
_OWN: dict[str, Kind] = {"throttled": "compute", "stalled": "python", "copies": "memory"}
HOST, GROUP = 8, 64
_MISSING = 0.05
_B_COMPUTE = 1.15
"""What the other role computes more."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Made:
    """Patterns and the truth."""

    patterns: Patterns
    roles: Ints
    groups: Ints
    guilty: frozenset[int]
    """Ranks; all of them where the fault is common to all."""
    victims: frozenset[int]


def make(workers: int, fault: str, severity: float, rng: np.random.Generator) -> Made:
    """Draw the patterns of a job; ``severity`` is the share of a step that the fault takes."""
    roles = (np.arange(workers) % 4 == 3).astype(np.int64)
    groups = np.arange(workers) // GROUP
    kinds = [kind for kind, count, _ in _KINDS for _ in range(count)]
    beta = _beta(workers, roles, rng)
    mu = 0.8 + 0.01 * rng.standard_normal(beta.shape)
    sigma = 0.02 * rng.lognormal(0, 0.5, beta.shape)
    at: dict[Kind, list[int]] = {
        kind: [row for row, each in enumerate(kinds) if each == kind] for kind in set(kinds)
    }
    guilty, victims = _hurt(fault, severity, _Workers(beta, mu, sigma, at, groups), rng)
    kept = np.sort(rng.permutation(workers)[: round((1 - _MISSING) * workers)])
    patterns = Patterns(
        names=[f"{kind} {number}" for number, kind in enumerate(kinds)],
        kinds=kinds,
        ranks=kept,
        beta=beta[:, kept].clip(0, 1).astype(np.float32),
        mu=mu[:, kept].clip(0, 1).astype(np.float32),
        sigma=sigma[:, kept].clip(0, 1).astype(np.float32),
    )
    there = frozenset(kept.tolist())
    return Made(patterns, roles[kept], groups[kept], guilty & there, victims & there)


def _beta(workers: int, roles: Ints, rng: np.random.Generator) -> Floats:
    """Return healthy shares of the time."""
    shares = np.concatenate([total * rng.dirichlet(np.full(count, 4.0)) for _, count, total in _KINDS])
    base = np.repeat(shares[:, None], workers, axis=1)
    compute = slice(0, 10)
    base[compute, roles == 1] *= _B_COMPUTE
    base[12:16, roles == 1] *= (0.22 - 0.62 * (_B_COMPUTE - 1)) / 0.22
    hosts = rng.normal(0, 0.01, (len(shares), -(-workers // HOST)))
    groups = rng.normal(0, 0.005, (len(shares), -(-workers // GROUP)))
    own = rng.standard_t(6, base.shape) * 0.01
    number = np.arange(workers)
    return base * np.exp(hosts[:, number // HOST] + groups[:, number // GROUP] + own)


class _Workers(NamedTuple):
    """What a fault changes."""

    beta: Floats
    mu: Floats
    sigma: Floats
    rows: dict[Kind, list[int]]
    groups: Ints


Hurt = tuple[frozenset[int], frozenset[int]]
"""The guilty and their victims."""


def _hurt(fault: str, severity: float, all_: _Workers, rng: np.random.Generator) -> Hurt:
    """Change what a fault changes."""
    workers = all_.beta.shape[1]
    everyone = frozenset(range(workers))
    some = rng.choice(workers, max(1, workers // 1000), replace=False)
    if fault == "healthy":
        return frozenset(), frozenset()
    if fault in _OWN:
        rows = all_.rows[_OWN[fault]]
        _take_longer(
            all_.beta, rows if fault == "throttled" else rows[:1], all_.rows["collective"], some, severity
        )
        if fault == "throttled":
            all_.mu[np.array(rows)[:, None], some] *= 0.62 / (0.62 + severity)
        guilty = frozenset(some.tolist())
        return guilty, everyone - guilty
    if fault in ("nic", "group"):
        return _slow_network(fault, severity, all_, rng)
    if fault == "uneven":
        all_.beta[all_.rows["compute"]] *= np.exp(rng.normal(0, severity, workers))
    else:
        all_.beta[all_.rows["python"][0]] += severity
    return everyone, frozenset()


def _take_longer(beta: Floats, own: list[int], waiting: list[int], who: Ints, severity: float) -> None:
    """Let some take longer; all others wait for them."""
    part = beta[own][:, who]
    others = np.setdiff1d(np.arange(beta.shape[1]), who)
    beta[np.array(own)[:, None], who] += severity * part / part.sum(axis=0)
    beta[np.array(waiting)[:, None], others] += severity / len(waiting)


def _slow_network(fault: str, severity: float, all_: _Workers, rng: np.random.Generator) -> Hurt:
    """Slow one worker's interface, or the transport of a whole group."""
    row = all_.rows["collective"][0]
    group = np.flatnonzero(all_.groups == rng.choice(all_.groups))
    usual = float(np.median(all_.beta[row]))
    slow = usual / (usual + severity)
    all_.beta[row, group] += severity
    all_.mu[row, group] *= slow
    one = rng.choice(group)
    if fault == "group":
        return frozenset(group.tolist()), frozenset()
    all_.sigma[row, group] += 0.3 * (1 - slow)  # They wait for every chunk of it.
    all_.sigma[row, one] = 0.02
    all_.mu[row, one] *= 0.9
    return frozenset([int(one)]), frozenset(group.tolist()) - {int(one)}
