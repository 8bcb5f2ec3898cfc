"""A thread that does something for one run after the other."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable

from holdfast.errors import StoreError
from holdfast.serve.web.trouble import say_sometimes

_LOG = logging.getLogger("holdfast.serve")
_AWAY_S = 5.0
"""Before a store that failed is asked again."""
_MOST_TRIES = 180
"""A quarter of an hour where one run waits alone: by then nobody wants to know any more."""


class Turns:
    """Runs wait in line, each once; ``share`` of a processor is spent on them, the rest is left to others."""

    def __init__(
        self, name: str, do: Callable[[str], object], *, share: float = 1.0, away_s: float = _AWAY_S
    ) -> None:
        self._name = name
        self._do = do
        self._rest = 1.0 / share - 1.0
        self._away_s = away_s
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._tries: Counter[str] = Counter()
        """Of runs for which the store has failed."""
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
            is_away = self._serve(key)
            self._pause(self._away_s if is_away else self._rest * (time.thread_time() - began_s))

    def _serve(self, key: str) -> bool:
        """Give a run its turn; return whether the store is away, and the run waits for another one."""
        try:
            self._do(key)
        except StoreError as error:
            say_sometimes(str(error))
            self._tries[key] += 1
            if self._tries[key] < _MOST_TRIES:
                self.put([key])
                return True
        except Exception:  # The next one is to have its turn all the same.
            _LOG.exception("run %s: %s failed", key, self._name)
        del self._tries[key]
        return False

    def _pause(self, pause_s: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._is_ended, timeout=pause_s)

    def _next(self) -> str | None:
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._is_ended)
            return None if self._is_ended else self._waiting.popitem(last=False)[0]
