"""The last events of a run, page by page."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.serve.store import Kept, RunRow, Store

PAGE = 200


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


def read_page(store: Store, row: RunRow, page: int = 0) -> EventPage:
    """Return a page of events; a page that is not there is the last one."""
    page = max(0, min(page, -(-row.events // PAGE) - 1))
    kept = store.last_records(row.key, skip=page * PAGE, limit=PAGE)
    return EventPage(tuple(kept), row.events, page)
