"""What many runs looked like lately, for lists: who looks at all runs must not hold up those who send.

A few runs are brought up to date while the reader waits. Where more have changed than that, the others are
shown as they were when they were last looked at, a few seconds ago, and brought up to date behind the scenes.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec
from markupsafe import Markup

from holdfast.incidents.values import RunView
from holdfast.serve.store import RunRow, Store
from holdfast.serve.web.live import Live
from holdfast.serve.web.spark import draw_spark
from holdfast.serve.web.trouble import spare
from holdfast.serve.web.turns import Turns

_WAIT_S = 0.01
"""For which a reader waits."""
_OLD_S = 30.0
"""For what was not looked at for so long a reader waits longer:"""
_WAIT_FOR_OLD_S = 0.1
_SHARE = 0.25
"""Of a processor, for what is done behind the scenes."""
MOST_LISTED = 500
"""Runs that a list takes into account."""
_MOST = 1000
_PACE_OF = timedelta(hours=1)
_POINTS = 40


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and when it was looked at."""

    change: int
    heard_at: str
    at_s: float
    view: RunView
    open: int
    """Incidents that are not over."""
    step_s: float | None
    """What a step took last; None: nobody told."""
    spark: Markup
    """Its steps of the last hour, drawn once: lists are looked at again and again."""


class Lately:
    """The last look at each run of a list; safe to be called from many threads."""

    def __init__(self, store: Store, live: Live, *, wait_s: float = _WAIT_S, old_s: float = _OLD_S) -> None:
        self._store = store
        self._live = live
        self._wait_s = wait_s
        self._old_s = old_s
        self._lock = threading.Lock()
        self._looks: OrderedDict[str, Look] = OrderedDict()
        self.turns = Turns("lists", lambda key: spare(key, self._renew, key), share=_SHARE)
        """Started and ended with the server; without it all is up to date at once."""

    def look(self, rows: Iterable[RunRow]) -> list[tuple[RunRow, Look]]:
        """Return runs as they are, or were a few seconds ago; who is gone or fails is left out."""
        began_s = time.monotonic()
        found = [(row, spare(row.key, self._known, row, began_s)) for row in rows]
        late = [row.key for row, look in found if look is not None and not self._is_current(row, look)]
        if late:
            self.turns.put(late)
        return [(row, look) for row, look in found if look is not None]

    def late_s(self, looks: Iterable[tuple[RunRow, Look]]) -> float:
        """Return how old the oldest look is that is not up to date; 0 where all are."""
        now_s = time.monotonic()
        late = [look for row, look in looks if not self._is_current(row, look)]
        return max((now_s - look.at_s for look in late), default=0.0)

    def meet(self, keys: Iterable[str]) -> None:
        """Look at runs that nobody has looked at yet: the first who does need not wait for all of them."""
        with self._lock:
            new = [key for key in keys if key not in self._looks] if len(self._looks) < _MOST else []
        if new:
            self.turns.put(new)

    def _known(self, row: RunRow, began_s: float) -> Look | None:
        with self._lock:
            look = self._looks.get(row.key)
        if look is not None and self._is_current(row, look):
            return look
        if look is None or not self.turns.is_going:
            return self._renew(row.key)
        now_s = time.monotonic()
        wait_s = self._wait_s if now_s - look.at_s < self._old_s else _WAIT_FOR_OLD_S
        return look if now_s > began_s + wait_s else self._renew(row.key)

    def _is_current(self, row: RunRow, look: Look) -> bool:
        # The second for what another server has put into the store.
        return look.change == self._live.change_of(row.key) and look.heard_at >= row.heard_at

    def _renew(self, key: str) -> Look | None:
        change = self._live.change_of(key)
        found = self._live.view_and_row(key, is_known_to_be_new=True)
        if found is None:
            with self._lock:
                self._looks.pop(key, None)
            return None
        view, row = found
        since = (datetime.fromisoformat(row.heard_at) - _PACE_OF).isoformat()
        points = self._store.pace(key, points=_POINTS, since=since)
        look = Look(
            change=change,
            heard_at=row.heard_at,
            at_s=time.monotonic(),
            view=view,
            open=sum(each.is_open for each in view.incidents),
            step_s=points[-1].step_s if points else None,
            spark=draw_spark(points),
        )
        with self._lock:
            self._looks[key] = look
            self._looks.move_to_end(key)
            while len(self._looks) > _MOST:
                self._looks.popitem(last=False)
        return look
