"""A thread that does something for one run after the other."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

_LOG = logging.getLogger("holdfast.serve")


class Turns:
    """Runs wait in line, each once; ``share`` of a processor is spent on them, the rest is left to others."""

    def __init__(self, name: str, do: Callable[[str], object], *, share: float = 1.0) -> None:
        self._name = name
        self._do = do
        self._rest = 1.0 / share - 1.0
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._condition = threading.Condition()
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, name=f"holdfast-{name}", daemon=True)

    @property
    def is_going(self) -> bool:
        """Whether somebody takes who waits."""
        return self._thread.is_alive() and not self._is_ended

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """End as soon as the run in hand is done."""
        with self._condition:
            self._is_ended = True
            self._condition.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)

    def put(self, keys: Iterable[str]) -> None:
        """Let runs wait; one that waits already keeps its place."""
        with self._condition:
            self._waiting.update(dict.fromkeys(keys))
            self._condition.notify_all()

    def _run(self) -> None:
        while (key := self._next()) is not None:
            began_s = time.thread_time()
            try:
                self._do(key)
            except Exception:  # The next one is to have its turn all the same.
                _LOG.exception("run %s: %s failed", key, self._name)
            if self._rest > 0:
                with self._condition:
                    self._condition.wait_for(
                        lambda: self._is_ended, timeout=self._rest * (time.thread_time() - began_s)
                    )

    def _next(self) -> str | None:
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._is_ended)
            return None if self._is_ended else self._waiting.popitem(last=False)[0]
