"""Orders probes where what is known does not settle who is to blame, and takes in what they found.

Only where the user allowed it (``--probe``): a probe stops the training for a moment.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.diagnose.passes import ring_passes
from holdfast.diagnose.probing import describe_silence, judge
from holdfast.findings import Suspect
from holdfast.job.files import replace_file
from holdfast.job.orders import OrderWriter, ProbeKind, ProbeOrder, ProbeResult, read_results
from holdfast.job.precheck import precheck_path, read_precheck
from holdfast.job.ring import ring_path
from holdfast.values import Probed

SURE = 0.9
"""Who is named with so much confidence needs no probe."""
_AHEAD_S = 3.0
"""So far ahead is the agreed step, at least: workers hear of an order when a step ends."""
_AHEAD_STEPS = 5
_PATIENCE_S = 10.0
MOST_RANKS = 64


def wants_probe(suspects: Sequence[Suspect]) -> bool:
    """Say whether a probe could tell more than is known."""
    if not suspects:
        return True
    first = suspects[0]
    is_open = first.cause in ("compute", "link", "unknown") and first.confidence < SURE
    return is_open or (first.cause == "link" and len(first.ranks) > 2)


class Probing:
    """One order at a time, of the ranks of this node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._orders = OrderWriter(folder)
        self._order: ProbeOrder | None = None
        self._until_s = 0.0

    def begin(self, suspects: Sequence[Suspect], ranks: Sequence[int], *, step: int, step_s: float) -> None:
        """Agree on a step at which ranks are probed."""
        kinds: list[ProbeKind] = ["gemm", "links"]
        if suspects and suspects[0].cause == "compute":
            kinds = ["gemm"]
        chosen = sorted(ranks)[:MOST_RANKS]
        self._order = ProbeOrder(
            id=secrets.token_hex(6),
            at_step=step + max(_AHEAD_STEPS, math.ceil(_AHEAD_S / max(step_s, 1e-3))),
            ranks=chosen,
            kinds=kinds,
            passes=ring_passes(chosen) if "links" in kinds else [],
            timeout_s=5.0,
            repeats=10,
        )
        self._until_s = math.inf
        self._orders.write(self._order)

    def look(self, *, step: int, now_s: float, hosts: Mapping[int, str]) -> Probed | None:
        """Return what a probe found, once it is over; None while there is nothing to tell."""
        order = self._order
        if order is None:
            return None
        results = read_results(self._folder, order.id, order.ranks)
        if self._until_s == math.inf and step > order.at_step:
            self._until_s = now_s + _PATIENCE_S
        if len(results) < len(order.ranks) and now_s < self._until_s:
            return None
        self._order = None
        return conclude(results, order, hosts)


def conclude(results: Sequence[ProbeResult], order: ProbeOrder, hosts: Mapping[int, str]) -> Probed:
    """Return what results say about the ranks of an order."""
    links = {
        f"{link.source}-{link.target}": min(link.times_s)
        for result in results
        for link in result.links
        if link.times_s and link.target == result.rank
    }
    return Probed(
        order=order.id,
        ranks=order.ranks,
        suspects=judge(results, order, hosts=hosts),
        silent=describe_silence(results, order),
        gemm_s={str(result.rank): min(result.gemm_s) for result in results if result.gemm_s},
        links_s=links,
    )


class Precheck:
    """The probes before the first step: ordered by the launcher, told by the guard."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told = ""

    def look(self, hosts: Mapping[int, str], *, has_steps: bool) -> Probed | None:
        """Return what was found, once: when all have answered, or have begun to train without an answer."""
        order = read_precheck(self._folder)
        if order is None or order.id == self._told:
            return None
        # Those of other nodes lay their results there.
        here = [rank for rank in order.ranks if ring_path(self._folder, rank).exists()]
        results = read_results(self._folder, order.id, here)
        if len(results) < len(here) and not has_steps:
            return None
        self._told = order.id
        return conclude(results, msgspec.structs.replace(order, ranks=here, passes=[]), hosts)


def order_precheck(folder: Path, *, world_size: int, attempt: int) -> None:
    """Order the probes of an attempt; every rank finds the order when it has met the others."""
    ranks = list(range(world_size))
    order = ProbeOrder(
        id=f"precheck-{attempt}",
        at_step=0,
        ranks=ranks,
        kinds=["gemm", "links"],
        passes=ring_passes(ranks),
        timeout_s=10.0,
        repeats=10,
    )
    with contextlib.suppress(OSError):  # Then there is none, and training begins at once.
        replace_file(precheck_path(folder), msgspec.json.encode(order))
