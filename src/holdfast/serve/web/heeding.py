"""A thread that looks at runs after they changed, and tells whoever wants to know, such as the webhook.

It is not the writer's thread: somebody who is slow to listen must not keep senders waiting.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from holdfast.incidents.values import RunView
from holdfast.serve.web.live import Heed, Live

_LOG = logging.getLogger("holdfast.serve")
_MOST_KNOWN = 1000


class Heeding:
    """Hands every run that changed to all who heed, with how it was before."""

    def __init__(self, live: Live, heeders: Sequence[Heed]) -> None:
        self._live = live
        self._heeders = heeders
        self._before: OrderedDict[str, RunView] = OrderedDict()
        self._changed: OrderedDict[str, None] = OrderedDict()
        self._condition = threading.Condition()
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, name="holdfast-heeding", daemon=True)

    def start(self) -> None:
        """Begin, if there is anybody to tell."""
        if self._heeders:
            self._thread.start()

    def end(self) -> None:
        """End as soon as the run in hand is done."""
        with self._condition:
            self._is_ended = True
            self._condition.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)

    def change(self, keys: Iterable[str]) -> None:
        """Note runs that have new events; a run that waits already waits once."""
        if not self._heeders:
            return
        with self._condition:
            self._changed.update(dict.fromkeys(keys))
            self._condition.notify_all()

    def _run(self) -> None:
        while (key := self._next()) is not None:
            try:
                self._tell(key)
            except Exception:  # The next run is to be told of all the same.
                _LOG.exception("run %s: nobody could be told what changed", key)

    def _next(self) -> str | None:
        with self._condition:
            self._condition.wait_for(lambda: self._changed or self._is_ended)
            return None if self._is_ended else self._changed.popitem(last=False)[0]

    def _tell(self, key: str) -> None:
        after = self._live.view(key)
        if after is None:
            return
        before = self._before.get(key)
        self._before[key] = after
        self._before.move_to_end(key)
        while len(self._before) > _MOST_KNOWN:
            self._before.popitem(last=False)
        for heed in self._heeders:
            heed(key, before, after)
