"""The last events of a run, page by page, and its profiles, without reading everything each time."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict, deque
from typing import NamedTuple

from holdfast.serve.store import Kept, Store
from holdfast.values import Profiled, Record

PAGE = 200
_READ = 10_000
_MOST_RUNS = 500
_MOST_PROFILES = 3


class EventPage(NamedTuple):
    """Some events, the newest first."""

    kept: tuple[Kept, ...]
    total: int
    page: int
    """0 is the newest."""

    @property
    def pages(self) -> int:
        """How many there are."""
        return max(1, -(-self.total // PAGE))


class _Seen:
    """What is remembered of one run."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.numbers = array("q")
        self.profiles: deque[Record] = deque(maxlen=_MOST_PROFILES)


class Tails:
    """Remembers the numbers of all records that were seen, which is what it takes to find the last ones."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Seen] = OrderedDict()

    def page(self, key: str, page: int = 0) -> EventPage:
        """Return a page of events; a page that is not there is the last one."""
        seen = self._follow(key)
        with seen.lock:
            total = len(seen.numbers)
            page = max(0, min(page, -(-total // PAGE) - 1))
            end = total - page * PAGE
            start = max(0, end - PAGE)
            after = seen.numbers[start - 1] if start > 0 else 0
        kept = self._store.records(key, after=after, limit=end - start) if end > start else []
        return EventPage(tuple(reversed(kept)), total, page)

    def profiles(self, key: str) -> list[Record]:
        """Return the last profiles of all ranks, the newest first."""
        seen = self._follow(key)
        with seen.lock:
            return list(reversed(seen.profiles))

    def _follow(self, key: str) -> _Seen:
        with self._lock:
            seen = self._runs.setdefault(key, _Seen())
            self._runs.move_to_end(key)
            while len(self._runs) > _MOST_RUNS:
                self._runs.popitem(last=False)
        with seen.lock:
            while True:
                more = self._store.records(key, after=seen.numbers[-1] if seen.numbers else 0, limit=_READ)
                seen.numbers.extend(each.number for each in more)
                seen.profiles.extend(each.record for each in more if isinstance(each.record.event, Profiled))
                if len(more) < _READ:
                    return seen
