"""One thread that writes shipments to the store: all that wait in one transaction, then all are answered.

A commit costs a flush of the disk, whether it holds one shipment or a hundred; so a thousand senders cost
little more than one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import NamedTuple

from holdfast.errors import StoreError
from holdfast.serve.metrics.counters import ServerCounters
from holdfast.serve.store import Store, Taken
from holdfast.shipment import Shipment

_LOG = logging.getLogger("holdfast.serve")
_MOST_WAITING = 512
_MOST_WAITING_BYTES = 64 << 20
_MOST_AT_ONCE = 128
_REST_S = 0.05
"""Between two transactions: one of ten shipments costs little more than one of one."""


class _Waiting(NamedTuple):
    shipment: Shipment
    size: int
    heard_at: datetime | None
    future: Future[Taken]


class FullError(Exception):
    """Too many shipments wait to be written."""


class EndedError(Exception):
    """The server is about to end; what was not written yet is sent again later."""


class Writer:
    """Takes shipments from any thread; answers each when it is in the store for good."""

    def __init__(
        self,
        store: Store,
        *,
        on_taken: Callable[[Sequence[Shipment]], None],
        counters: ServerCounters,
        most_waiting: int = _MOST_WAITING,
    ) -> None:
        self._store = store
        self._on_taken = on_taken
        self._counters = counters
        self._most_waiting = most_waiting
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._condition = threading.Condition()
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, name="holdfast-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def end(self) -> None:
        """Write what waits, then end."""
        with self._condition:
            self._is_ended = True
            self._condition.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def put(self, shipment: Shipment, *, size: int = 0, heard_at: datetime | None = None) -> Future[Taken]:
        """Queue a shipment of about so many bytes; one of an old file was heard when that was written."""
        future: Future[Taken] = Future()
        with self._condition:
            if self._is_ended:
                raise EndedError
            is_too_much = self._bytes + size > _MOST_WAITING_BYTES and self._bytes > 0
            if len(self._waiting) >= self._most_waiting or is_too_much:
                raise FullError
            self._waiting.append(_Waiting(shipment, size, heard_at, future))
            self._bytes += size
            self._counters.set_waiting(len(self._waiting))
            self._condition.notify_all()
        return future

    def _run(self) -> None:
        while batch := self._next():
            self._write(batch)
            if batch[0].heard_at is None:
                self._rest()

    def _rest(self) -> None:
        """Let a few shipments gather; nobody waits where there are more than go into one transaction."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._is_ended or len(self._waiting) >= _MOST_AT_ONCE, timeout=_REST_S
            )

    def _next(self) -> list[_Waiting]:
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._is_ended)
            batch: list[_Waiting] = []
            while self._waiting and len(batch) < _MOST_AT_ONCE:
                if batch and self._waiting[0].heard_at != batch[0].heard_at:
                    break
                batch.append(self._waiting.popleft())
            self._bytes -= sum(each.size for each in batch)
            self._counters.set_waiting(len(self._waiting))
        for each in batch:
            # Nobody can cancel it from here on. Whoever did before is not answered; what was sent is kept.
            each.future.set_running_or_notify_cancel()
        return batch

    def _write(self, batch: list[_Waiting]) -> None:
        shipments = [each.shipment for each in batch]
        began_s = time.monotonic()
        try:
            taken = self._store.take(shipments, heard_at=batch[0].heard_at)
        except Exception as error:
            if len(batch) == 1 or isinstance(error, StoreError):
                for each in batch:
                    if not each.future.cancelled():
                        each.future.set_exception(error)
            else:  # One of them is at fault; the others are not to suffer for it.
                for each in batch:
                    self._write([each])
            return
        self._count(taken, time.monotonic() - began_s)
        self._tell(shipments)
        for each, its in zip(batch, taken, strict=True):
            if not each.future.cancelled():
                each.future.set_result(its)

    def _count(self, taken: Sequence[Taken], lasted_s: float) -> None:
        self._counters.observe_take(lasted_s)
        self._counters.add("shipments", len(taken))
        self._counters.add("events", sum(each.taken for each in taken))
        self._counters.add("duplicates", sum(each.known for each in taken))
        self._counters.add("refused", sum(len(each.refused) for each in taken))

    def _tell(self, shipments: Sequence[Shipment]) -> None:
        try:
            self._on_taken(shipments)
        except Exception:  # They are kept; that nobody was told must not cost the sender its answer.
            _LOG.exception("what follows from a shipment failed")
