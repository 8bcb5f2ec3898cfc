"""What the ranks used of each resource, in words: the median first, then the guilty, then the others."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.diagnose.case import Case
from holdfast.serve.casewords import guilty_ranks

RESOURCES = {
    "cpu": "CPU of the training thread",
    "communication": "CPU of communication",
    "faults": "page faults/s",
    "network": "network/s",
    "device": "device clock",
}


class Used(NamedTuple):
    """One rank, or the median of all."""

    rank: int | None
    mark: str
    host: str
    amounts: list[str]


def resources_of(case: Case) -> list[str]:
    """Return the resources that something is known of."""
    return [name for name in RESOURCES if any(name in mine for mine in case.usage.values())]


def rows_of(case: Case, resources: Sequence[str], most: int) -> list[Used]:
    """Return at most so many ranks, below the median."""
    place = {rank: number for number, rank in enumerate(guilty_ranks(case))}
    waiting = set(case.verdict.victims)
    order = sorted(case.usage, key=lambda rank: (place.get(rank, len(place)), rank))
    middle = [
        statistics.median(mine[name] for mine in case.usage.values() if name in mine) for name in resources
    ]
    amounts = [tell_amount(name, value) for name, value in zip(resources, middle, strict=True)]
    rows = [Used(None, "", "", amounts)]
    for rank in order[:most]:
        mark = "suspect" if rank in place else "waits" if rank in waiting else ""
        amounts = [tell_amount(name, case.usage[rank].get(name)) for name in resources]
        rows.append(Used(rank, mark, case.hosts.get(rank, ""), amounts))
    return rows


def tell_amount(resource: str, value: float | None) -> str:
    """Return how much it is, in the unit of the resource."""
    if value is None:
        return ""
    if resource == "network":
        return _tell_bytes(value)
    return f"{value:,.0f}" if resource == "faults" else f"{value:.0%}"


def _tell_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"
