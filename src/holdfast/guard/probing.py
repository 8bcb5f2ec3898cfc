"""Orders probes where what is known does not settle who is to blame, and takes in what they found.

Only where the user allowed it (``--probe``): a probe stops the training for a moment.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.diagnose.passes import ring_passes
from holdfast.diagnose.probing import describe_silence, judge
from holdfast.findings import Suspect
from holdfast.job.orders import OrderWriter, ProbeKind, ProbeOrder, ProbeResult, read_results
from holdfast.job.precheck import precheck_order

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

    def look(self, *, step: int, now_s: float, hosts: Mapping[int, str]) -> list[Suspect] | None:
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
        return judge(results, order, hosts=dict(hosts))


class Precheck:
    """The probes before the first step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def results(
        self, ranks: Sequence[int], attempt: int
    ) -> tuple[list[ProbeResult], list[Suspect], list[str]]:
        """Return what ranks said, who stands out, and who did not get through."""
        order = precheck_order(list(ranks), str(attempt))
        results = read_results(self._folder, order.id, order.ranks)
        return results, judge(results, order), describe_silence(results, order)
