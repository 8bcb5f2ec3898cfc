"""Looks at runs after they changed, and tells whoever wants to know, such as the webhook.

Not in the writer's thread: somebody who is slow to listen must not keep senders waiting.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from holdfast.incidents.values import RunView
from holdfast.serve.web.live import Heed, Live
from holdfast.serve.web.turns import Turns

_MOST_KNOWN = 1000


class Heeding:
    """Hands every run that changed to all who heed, with how it was before."""

    def __init__(self, live: Live, heeders: Sequence[Heed]) -> None:
        self._live = live
        self._heeders = heeders
        self._lock = threading.Lock()
        self._before: OrderedDict[str, RunView] = OrderedDict()
        self._turns = Turns("heeding", self._tell)

    def start(self) -> None:
        """Begin, if there is anybody to tell."""
        if self._heeders:
            self._turns.start()

    def end(self) -> None:
        """End as soon as the run in hand is done."""
        self._turns.end()

    def change(self, keys: Iterable[str]) -> None:
        """Note runs that have new events."""
        if self._heeders:
            self._turns.put(keys)

    def advance(self, keys: Iterable[str]) -> None:
        """Note runs that made steps: a hang may be over by that, and there is no event that says so."""
        if self._heeders:
            with self._lock:
                hung = [key for key in keys if self._may_be_hung(key)]
            self._turns.put(hung)

    def _may_be_hung(self, key: str) -> bool:
        before = self._before.get(key)
        if before is None:  # It was there before the server; of too many to be remembered, nobody knows.
            return len(self._before) < _MOST_KNOWN
        return before.state == "hung"

    def _tell(self, key: str) -> None:
        after = self._live.view(key)
        if after is None:
            return
        with self._lock:
            before = self._before.get(key)
            self._before[key] = after
            self._before.move_to_end(key)
            while len(self._before) > _MOST_KNOWN:
                self._before.popitem(last=False)
        for heed in self._heeders:
            heed(key, before, after)
