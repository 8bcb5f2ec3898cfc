"""Who and what is to blame, from the patterns of all workers' profiles.

Every worker is held against its own role. What a worker does itself (compute, memory, Python) is its own
fault if it takes longer there; who spends more in collectives waits for somebody. Among those whose network
is used less, the guilty one uses it steadily, and those that wait for it by fits and starts. What all have in
common, and what is spread without anybody standing out, is told as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.diagnose.patterns import Patterns
from holdfast.diagnose.unlike import Floors, Ints, Residuals, Roles, Values, limit
from holdfast.observe.kineto import Kind

LEAST = 0.01
"""Share of the time from which on something matters."""
MARGIN = 0.05
"""Of what is usual, that a share has to be off."""
LEAST_USE = 0.05
"""Of a resource, that its use has to be off."""
LESS_USE = 0.93
"""Of what is usual, below which a resource is used less."""
EXPECTED: dict[Kind, float] = {"python": 0.05, "memory": 0.10, "collective": 0.60, "compute": 1.0}
"""What all workers together may spend on a function of each kind."""
UNEVEN = 0.06
"""Spread of compute over workers, from which on their work is not the same."""
_OWN: tuple[Kind, ...] = ("compute", "memory", "python")
_BETA = Floors(0.002, 0.01)
_USE = Floors(0.005, 0.01)
_SPREAD = Floors(0.01, 0.2)
_FITFUL = 2.0
"""Score of the spread of use in the median of some, from which on they wait for what another sends."""
_STEADY = 0.4
"""Of that score: who is below it does not wait."""

_SPREAD_OUT = 4
"""Workers of a role, below which nobody can say that they are spread and not one of them off."""
_TO_ONE = re.compile(r"send|recv", re.IGNORECASE)
_EXPLAINED = 1.5
"""So many times what others are late by, who waits for them may spend in collectives."""
_BESIDE = 0.1
"""Of what the dearest finding costs: what all have in common and costs less is not told beside it."""
_AGREES = 3.0
"""Score of each of two signs, from which on they say the same."""

Mask = npt.NDArray[np.bool_]
What = Literal["longer", "slower network", "common", "uneven"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A function that is abnormal on some workers."""

    row: int
    """Of the patterns: the function."""
    function: str
    kind: Kind
    what: What
    ranks: list[int]
    cost: float
    """Share of the time that would be saved."""
    use: float | None = None
    """Of its resource by these workers, over what is usual; None: nothing is known."""
    usual: float = 0.0
    """Share of the time that the function takes elsewhere."""
    taken: float = 0.0
    """Share that it takes on the worst of these workers."""
    score: float
    waiting: list[int] = []
    """Whose network is used less because they wait for these."""


def localise(patterns: Patterns, roles: Ints | None = None) -> list[Finding]:
    """Return what is abnormal, the dearest first; without roles all workers are of one."""
    workers = len(patterns.ranks)
    same = Roles(np.zeros(workers, np.int64) if roles is None else roles)
    own, uneven = list(_own(patterns, same, _OWN)), list(_uneven(patterns, same))
    if any(_is_slow_compute(finding) for finding in own):
        uneven = []
    if uneven:  # Then who computes longest has only got the most to do.
        own = [finding for finding in own if finding.kind != "compute"]
    networks = [finding for finding in _networks(patterns, same) if not _is_waiting(finding, [*uneven, *own])]
    common = list(_common(patterns, same))
    # What stops one worker now and another then makes all of them wait in turn.
    busy = [*uneven, *own, *(finding for finding in common if finding.kind != "collective")]
    common = [each for each in common if each.kind != "collective" or not _is_explained(each, busy)]
    dearest = max((finding.cost for finding in [*uneven, *own, *networks, *common]), default=0.0)
    common = [each for each in common if each.cost >= _BESIDE * dearest]
    return sorted([*uneven, *own, *networks, *common], key=lambda finding: -finding.cost)


def _is_explained(wait: Finding, busy: Sequence[Finding]) -> bool:
    """Say whether others are kept busy for about as long as these wait."""
    return bool(busy) and wait.cost <= _EXPLAINED * max(finding.cost for finding in busy)


def _is_waiting(network: Finding, own: Sequence[Finding]) -> bool:
    """Say whether others are late by about as much as these take longer in collectives: then they wait."""
    late = [
        finding for finding in own if finding.what == "uneven" or not set(finding.ranks) & set(network.ranks)
    ]
    return _is_explained(network, late)


def _is_slow_compute(finding: Finding) -> bool:
    return finding.kind == "compute" and finding.use is not None and finding.use < LESS_USE


# --- what workers do themselves -----------------------------------------------------------------


def _own(patterns: Patterns, roles: Roles, kinds: Sequence[Kind]) -> Iterator[Finding]:
    """Yield kinds of work that some take longer for than others of their role, by the dearest function."""
    rows = {kind: [row for row, each in enumerate(patterns.kinds) if each == kind] for kind in kinds}
    parts = {row: roles.residuals(patterns.beta[row], _BETA) for each in rows.values() for row in each}
    # Single functions show what hits one of them; their sum shows what hits all of them a little.
    sums = {
        kind: roles.residuals(patterns.beta[each].sum(axis=0, dtype=np.float32), _BETA)
        for kind, each in rows.items()
        if len(each) > 1
    }
    least = {
        "one": limit([part.score for part in parts.values()]),
        "sum": limit([part.score for part in sums.values()]),
    }
    for kind, mine in rows.items():
        masks = [_longer(parts[row], least["one"]) for row in mine]
        masks += [_longer(sums[kind], least["sum"])] if kind in sums else []
        masks += [_slower(patterns, mine, roles)] if kind == "compute" and mine else []
        who = np.flatnonzero(np.any(masks, axis=0)) if masks else np.zeros(0, np.int64)
        if len(who):
            yield from _by_function(patterns, kind, who, {row: parts[row] for row in mine}, roles)


def _longer(residuals: Residuals, least: float) -> Mask:
    margin = np.maximum(LEAST, MARGIN * residuals.usual)
    return np.asarray((residuals.score >= least) & (residuals.off > margin))


def _slower(patterns: Patterns, rows: Sequence[int], roles: Roles) -> Mask:
    """Say who computes longer and gets less out of its device meanwhile: two signs that agree."""
    longer = roles.residuals(patterns.beta[rows].sum(axis=0, dtype=np.float32), _BETA)
    use = roles.residuals(_mean_use(patterns, rows), _USE, bad_side=-1)
    both = Residuals(longer.usual, longer.off, (longer.score - use.score) / np.sqrt(np.float32(2)))
    return _longer(both, limit([both.score])) & (use.score < -_AGREES) & (longer.score > _AGREES)


def _mean_use(patterns: Patterns, rows: Sequence[int]) -> Values:
    """Return the use of some functions together, each by its share of the time."""
    weight = np.maximum(patterns.beta[rows], np.float32(1e-9))
    return np.asarray((patterns.mu[rows] * weight).sum(axis=0) / weight.sum(axis=0), np.float32)


def _by_function(
    patterns: Patterns, kind: Kind, who: Ints, parts: dict[int, Residuals], roles: Roles
) -> Iterator[Finding]:
    """Yield one finding for each function that is the dearest of some of these workers."""
    rows = list(parts)
    excess = np.stack([parts[row].off[who] for row in rows])
    dearest = np.array(rows)[excess.argmax(axis=0)]
    if (
        kind == "compute"
    ):  # A device that is slow is slow in everything: one finding, by its largest function.
        dearest[:] = np.bincount(dearest).argmax()
    for row in np.unique(dearest).tolist():
        mine = who[dearest == row]
        cost = np.stack([parts[each].off[mine] for each in rows]).sum(axis=0)
        yield Finding(
            row=row,
            function=patterns.names[row],
            kind=kind,
            what="longer",
            ranks=patterns.ranks[mine].tolist(),
            cost=float(cost.max()),
            use=_use(patterns, row, mine, roles),
            score=float(parts[row].score[mine].max()),
            usual=float(np.median(parts[row].usual[mine])),
            taken=float(patterns.beta[row, mine].max()),
        )


def _use(patterns: Patterns, row: int, who: Ints, roles: Roles) -> float | None:
    """Return how much of a resource some use, over what is usual."""
    usual = roles.residuals(patterns.mu[row], _USE, bad_side=-1).usual[who]
    middle = float(np.median(usual))
    return float(np.median(patterns.mu[row, who])) / middle if middle > 0 else None


# --- networks -----------------------------------------------------------------------------------


def _networks(patterns: Patterns, roles: Roles) -> Iterator[Finding]:
    """Yield workers whose network is slow: used less than by others, and steadily."""
    rows = [row for row, kind in enumerate(patterns.kinds) if kind == "collective"]
    uses = {row: roles.residuals(patterns.mu[row], _USE, bad_side=-1) for row in rows}
    least = limit([use.score for use in uses.values()], bad_side=-1)
    for row, use in uses.items():
        beta = roles.residuals(patterns.beta[row], _BETA)
        is_low = (-use.score >= least) & (-use.off > np.maximum(LEAST_USE, MARGIN * use.usual))
        low = np.flatnonzero(is_low & (beta.off > LEAST))
        guilty = low[_is_steady(roles.residuals(patterns.sigma[row], _SPREAD).score[low])]
        if not len(guilty):  # Nobody, or all of them wait for somebody whose profile is missing.
            continue
        yield Finding(
            row=row,
            function=patterns.names[row],
            kind="collective",
            what="slower network",
            ranks=patterns.ranks[guilty].tolist(),
            cost=float(beta.off[guilty].max()),
            use=_use(patterns, row, guilty, roles),
            score=float(-use.score[guilty].min()),
            usual=float(np.median(beta.usual[guilty])),
            taken=float(patterns.beta[row, guilty].max()),
            waiting=patterns.ranks[np.setdiff1d(low, guilty)].tolist(),
        )


def _is_steady(spread: Values) -> Mask:
    """Say who of those with a slow network does not wait for another of them."""
    middle = float(np.median(spread)) if len(spread) else 0.0
    if middle < _FITFUL:  # Nobody waits by fits and starts: all have it.
        return np.ones(len(spread), bool)
    return spread < _STEADY * middle


# --- what nobody stands out in ------------------------------------------------------------------


def _common(patterns: Patterns, roles: Roles) -> Iterator[Finding]:
    """Yield functions that all workers of a role spend more on than they should, whoever calls them."""
    for (name, kind), rows in _by_name(patterns).items():
        if kind == "collective" and _TO_ONE.search(name):  # Who receives is waited for by design.
            continue
        row = max(rows, key=lambda each: float(patterns.beta[each].sum()))
        together = patterns.beta[rows].sum(axis=0, dtype=np.float32)
        above = [(part, most) for part, most in roles.least(together) if most > EXPECTED[kind] + LEAST]
        if above:
            most = max(middle for _, middle in above)
            yield Finding(
                row=row,
                function=name,
                kind=kind,
                what="common",
                ranks=np.sort(patterns.ranks[np.concatenate([part for part, _ in above])]).tolist(),
                cost=most - EXPECTED[kind],
                usual=EXPECTED[kind],
                taken=most,
                score=most / EXPECTED[kind],
            )


def _by_name(patterns: Patterns) -> dict[tuple[str, Kind], list[int]]:
    found: dict[tuple[str, Kind], list[int]] = {}
    for row, key in enumerate(zip(patterns.names, patterns.kinds, strict=True)):
        found.setdefault(key, []).append(row)
    return found


def _uneven(patterns: Patterns, roles: Roles) -> Iterator[Finding]:
    """Yield compute that is spread over workers, each as fast as the others: their input differs."""
    rows = [row for row, kind in enumerate(patterns.kinds) if kind == "compute"]
    if not rows:
        return
    together = patterns.beta[rows].sum(axis=0, dtype=np.float32)
    speeds = roles.spreads(_mean_use(patterns, rows))
    row = rows[int(patterns.beta[rows].mean(axis=1).argmax())]
    for (part, middle, spread), (_, usual, wobble) in zip(roles.spreads(together), speeds, strict=True):
        if len(part) < _SPREAD_OUT or middle < LEAST or spread < UNEVEN * middle:
            continue
        if usual > 0 and wobble / usual > spread / middle / 3:
            continue
        yield Finding(
            row=row,
            function=patterns.names[row],
            kind="compute",
            what="uneven",
            ranks=patterns.ranks[part].tolist(),
            cost=float(together[part].max()) - middle,
            use=1.0,
            score=spread / middle / UNEVEN,
        )
