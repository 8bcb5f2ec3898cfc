"""Sends what a node has written to a server, batch by batch, as the answers allow.

A server that is away is asked again after longer and longer pauses. What it has missed is sent in bounded
batches, with a pause between them. Lines that it will never take are left out in the end, and counted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from holdfast.guard.posting import TIMEOUT_S, Outcome, Poster
from holdfast.guard.say import Say
from holdfast.guard.spool import Batch, Spool, make_shipment
from holdfast.shipment import MOST_ORDERS, Order, Receipt, Run

EVERY_S = 1.0
"""Between two shipments while there is news, unless the server asks for more."""
ASK_EVERY_S = 2.0
"""Between two of node 0 while there is none: orders come with the answers."""
CATCH_UP_S = 0.2
"""Between two batches while much is left."""
LONGEST_S = 30.0
"""Between two attempts, unless the server asks for more."""
_FIRST_S = 0.5
_MOST_LINES = 2000
_MOST_BYTES = 1 << 20
_LEAST_BYTES = 1 << 12


class Sender:
    """One node's; ``turn`` does one thing, and says how long to rest."""

    def __init__(self, spool: Spool, poster: Poster, run: Callable[[], Run], *, node: int, say: Say) -> None:
        self._spool = spool
        self._poster = poster
        self._run = run
        self._node = node
        self._say = say
        self._most_lines = _MOST_LINES
        self._most_bytes = _MOST_BYTES
        self._failures = 0
        self._asked_s = float("-inf")
        self._every_s = EVERY_S
        self.on_orders: Callable[[Sequence[Order]], None] = lambda orders: None
        """Called with what people want of the run, for node 0 only; the same orders come again and again."""
        self.taken = 0
        """Lines that the server has."""
        self.refused = 0
        """Lines that it will never have."""
        self.is_done = False
        """Whether all that was written had been acknowledged at the last turn."""
        self.trouble: Outcome | None = None
        """What the last turn failed with, where trying again at once will not help."""

    def turn(self, now_s: float, *, timeout_s: float = TIMEOUT_S) -> float:
        """Send a batch, if there is one; return the seconds to wait before the next turn."""
        batch = self._spool.next(most_lines=self._most_lines, most_bytes=self._most_bytes)
        self.is_done = False
        if batch.lines:
            self._asked_s = now_s
            return self._send(batch, timeout_s)
        self._acknowledge(batch)  # Rows of other nodes, or nothing.
        if batch.is_all and self._node == 0 and now_s - self._asked_s >= max(ASK_EVERY_S, self._every_s):
            self._asked_s = now_s
            return self._ask(timeout_s)
        return self._every_s if batch.is_all else 0.0

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()

    def _send(self, batch: Batch, timeout_s: float) -> float:
        outcome = self._post(batch, timeout_s)
        if outcome.receipt is None:
            return self._shrink(batch, outcome, timeout_s)
        receipt = outcome.receipt
        # Of many reasons only the first are given.
        refused = max(len(receipt.refused), batch.lines - receipt.taken - receipt.known)
        self.taken += max(0, batch.lines - refused)
        self._leave_out(refused)
        self._acknowledge(batch)
        self._succeed(outcome.receipt)
        return self._every_s if batch.is_all else CATCH_UP_S

    def _ask(self, timeout_s: float) -> float:
        """Send nothing, to hear what is wanted."""
        outcome = self._post(None, timeout_s)
        if outcome.receipt is None:
            return self._fail(outcome)
        self._succeed(outcome.receipt)
        return self._every_s

    def _post(self, batch: Batch | None, timeout_s: float) -> Outcome:
        return self._poster.post(make_shipment(self._run(), self._node, batch), timeout_s=timeout_s)

    def _acknowledge(self, batch: Batch) -> None:
        self._leave_out(batch.dropped)
        self._spool.acknowledge(batch)
        self.is_done = batch.is_all

    def _succeed(self, receipt: Receipt) -> None:
        if self._failures > 1:
            self._say.once("server again", f"the server {self._poster.server.url} answers again")
        self._failures, self.trouble = 0, None
        self._every_s = min(LONGEST_S, max(EVERY_S, receipt.every_s))
        self._most_lines = min(_MOST_LINES, 2 * self._most_lines)
        self._most_bytes = min(_MOST_BYTES, 2 * self._most_bytes)
        if self._node == 0:
            self.on_orders(receipt.orders[:MOST_ORDERS])

    # --- when it fails ------------------------------------------------------------------------

    def _shrink(self, batch: Batch, outcome: Outcome, timeout_s: float) -> float:
        """Make the next batch smaller, until the line is found that the server does not take."""
        if batch.lines > 1:
            self._most_lines = max(1, batch.lines // 2)
            self._most_bytes = max(_LEAST_BYTES, self._most_bytes // 2)
        if outcome.failure not in ("refused", "too large"):
            return self._fail(outcome)
        if batch.lines > 1:
            return CATCH_UP_S
        if self._post(None, timeout_s).receipt is None:  # Then it is not the line's fault.
            return self._fail(outcome)
        self._leave_out(1)
        self._acknowledge(batch)
        return CATCH_UP_S

    def _fail(self, outcome: Outcome) -> float:
        self.is_done, self.trouble = False, outcome
        self._failures += 1
        self._tell(outcome)
        if outcome.failure not in ("away", "busy"):
            return LONGEST_S  # A person has to do something, such as to replace the token's file.
        pause_s = min(LONGEST_S, _FIRST_S * 2.0 ** min(self._failures, 10)) * random.uniform(0.5, 1.0)
        # A little more than was asked for, so that not all nodes come back at once.
        return max(pause_s, outcome.wait_s * random.uniform(1.0, 1.2))

    def _leave_out(self, lines: int) -> None:
        if lines:
            self.refused += lines
            self._say.once("server lines", "some lines cannot be sent; they stay in the run directory")

    def _tell(self, outcome: Outcome) -> None:
        if outcome.failure == "away" and self._failures < 2:
            return  # It happens, and is over a second later.
        # Once per kind: a server that restarts every night is not news.
        self._say.once(
            f"server {outcome.failure}",
            f"nothing can be sent to {self._poster.server.url} ({outcome.words}); it stays in the run "
            "directory and is sent later",
        )
