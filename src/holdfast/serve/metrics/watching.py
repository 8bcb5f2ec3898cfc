"""Which runs of the store are shown, and what is known of each.

A run is *live* while it is heard of. One that fell silent without having ended is shown for a day with the
little that an alert needs: its state, and when it was heard of last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from holdfast.incidents.values import RunView
from holdfast.metrics.seen import Pace, RunSeen, Tally
from holdfast.serve.store.values import Kept, RankPace, RunRow, StoreSize
from holdfast.serve.web.trouble import spare

_PAGE = 10_000
_OVER = frozenset({"failed", "stopped", "ended", "lost"})


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs are shown."""

    most_runs: int = 200
    """Of the live ones, those that started last; the others are only counted."""
    most_silent: int = 200
    most_rows: int = 5000
    """Runs that are looked at."""
    live_s: float = 300.0
    silent_s: float = 86400.0


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a store."""

    runs: tuple[RunSeen, ...]
    live: int
    silent: int
    omitted: int


class Runs(Protocol):
    """The part of the store that is needed."""

    def runs(self, *, text: str = "", limit: int = 100, before: str | None = None) -> list[RunRow]:
        """Return the runs heard of last, or those heard of before a moment."""

    def records(self, key: str, *, after: int = 0, limit: int = _PAGE) -> list[Kept]:
        """Return what happened to a run."""

    def ranks(self, key: str) -> list[RankPace]:
        """Return how fast each rank was last."""

    def size(self) -> StoreSize:
        """Return how much there is."""


class Views(Protocol):
    """Who knows how runs look now."""

    def view(self, key: str) -> RunView | None:
        """Return a run; None: there is no such run."""


class _Counted(msgspec.Struct, kw_only=True):
    tally: Tally
    number: int = 0
    """Of the last record that is in it."""
    events: int = -1
    """Of the run, when it was last looked at: most of the time there are no more."""


class Watch:
    """Looks at a store; used by one thread at a time."""

    def __init__(self, store: Runs, views: Views, shown: Shown | None = None) -> None:
        self._store = store
        self._views = views
        self._shown = shown or Shown()
        self._tallies: OrderedDict[str, _Counted] = OrderedDict()
        self._over: dict[str, str] = {}
        """Runs that ended, with when they were heard of last: nobody has to look at them again."""

    def look(self, now_s: float) -> Watched:
        """Return what is to be shown now."""
        rows = self._rows(now_s - self._shown.silent_s)
        live = [row for row in rows if heard_s(row) >= now_s - self._shown.live_s]
        live.sort(key=lambda row: (row.started_at, row.key), reverse=True)
        quiet = [row for row in rows if heard_s(row) < now_s - self._shown.live_s]
        silent = [row for row in quiet if not self._is_over(row)]
        self._over = {row.key: row.heard_at for row in quiet if self._over.get(row.key) == row.heard_at}
        shown = [
            *(spare(row.key, self._see, row) for row in live[: self._shown.most_runs]),
            *(spare(row.key, self._see_silent, row) for row in silent[: self._shown.most_silent]),
        ]
        omitted = len(live[self._shown.most_runs :]) + len(silent[self._shown.most_silent :])
        return Watched(
            runs=tuple(each for each in shown if each is not None),
            live=len(live),
            silent=len(silent),
            omitted=omitted,
        )

    def _rows(self, since_s: float) -> list[RunRow]:
        return [row for row in self._store.runs(limit=self._shown.most_rows) if heard_s(row) >= since_s]

    def _is_over(self, row: RunRow) -> bool:
        if self._over.get(row.key) == row.heard_at:
            return True
        view = spare(row.key, self._views.view, row.key)
        if view is not None and view.state not in _OVER:
            return False
        self._over[row.key] = row.heard_at
        return True

    def _see(self, row: RunRow) -> RunSeen | None:
        view = self._views.view(row.key)
        if view is None:  # It has just been removed.
            return None
        return RunSeen(
            key=row.key,
            name=row.name,
            host=row.host,
            heard_s=heard_s(row),
            view=view,
            step=view.step,
            tally=self._tally(row),
            paces=choose_paces(self._store.ranks(row.key), view),
        )

    def _see_silent(self, row: RunRow) -> RunSeen | None:
        view = self._views.view(row.key)
        if view is None:
            return None
        return RunSeen(
            key=row.key,
            name=row.name,
            host=row.host,
            heard_s=heard_s(row),
            view=view,
            tally=Tally(),
            is_live=False,
        )

    def _tally(self, row: RunRow) -> Tally:
        """Return what is counted of a run, with what is new."""
        counted = self._tallies.pop(row.key, _Counted(tally=Tally()))
        while counted.events != row.events:
            kept = self._store.records(row.key, after=counted.number, limit=_PAGE)
            for each in kept:
                counted.tally.add(each.record)
                counted.number = each.number
            if len(kept) < _PAGE:
                counted.events = row.events
        self._tallies[row.key] = counted
        while len(self._tallies) > 2 * self._shown.most_runs:
            self._tallies.popitem(last=False)
        return counted.tally


def choose_paces(ranks: Sequence[RankPace], view: RunView) -> tuple[Pace, ...]:
    """Return the paces of those who train; who died, or was of an earlier attempt, is not to be compared."""
    training = {worker.rank for worker in view.workers if worker.state in ("training", "slow")}
    return tuple(
        Pace(rank=each.rank, step_s=each.step_s, own_s=each.own_s)
        for each in ranks
        if each.rank in training or not view.workers
    )


def heard_s(row: RunRow) -> float:
    """Return when a run was heard of, in seconds since 1970."""
    return datetime.fromisoformat(row.heard_at).timestamp()
