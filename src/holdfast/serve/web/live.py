"""What runs look like now: their stories, kept up to date from the store while somebody asks for them."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

import msgspec

from holdfast.incidents.story import Story
from holdfast.incidents.values import RunState, RunView
from holdfast.serve.store import NEWS, Kept, RankPace, RunRow, Store
from holdfast.values import AttemptStarted, Profiled, Record

_MOST_WEIGHT = 1_000_000
"""Of all stories together: one for a worker, and for a moment of an incident. About 1 KB each, at worst."""
_LEAST_WEIGHT = 100
_MOST_PROFILES = 3
_MOST_GLANCES = 10_000
_MOST_CHANGES = 10_000


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """A run in one line, as lists and messages show it."""

    key: str
    number: int
    """Of the last record that is in it."""
    state: RunState
    step: int
    step_s: float | None
    """Median over ranks of what a step takes; None: not known."""
    world_size: int
    open_incidents: int
    lost_gpu_h: float


class _Entry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.story = Story()
        self.number = 0
        self.weight = _LEAST_WEIGHT
        self.seen = -1
        """Which change of the run is in it."""
        self.view: RunView | None = None
        self.row: RunRow | None = None
        self.step_s: float | None = None
        self.attempt_at = ""
        self.profiles: deque[Record] = deque(maxlen=_MOST_PROFILES)

    def add(self, kept: Kept) -> None:
        self.number = kept.number
        self.story.add(kept.record)
        if isinstance(kept.record.event, AttemptStarted):
            self.attempt_at = max(self.attempt_at, kept.record.stamp.at)
        if isinstance(kept.record.event, Profiled):
            self.profiles.append(kept.record)

    def reach(self, ranks: list[RankPace]) -> None:
        """Take in how far the ranks are; what is older than the attempt tells nothing of it."""
        fresh = [each for each in ranks if each.at >= self.attempt_at]
        paces = sorted(each.step_s for each in fresh)
        self.step_s = paces[len(paces) // 2] if paces else None
        if fresh:
            last = max(fresh, key=lambda each: (each.at, each.step))
            self.story.reach(last.step, last.at)


class Live:
    """Stories of the runs that somebody looks at; safe to be called from many threads."""

    def __init__(self, store: Store, *, most_weight: int = _MOST_WEIGHT) -> None:
        self._store = store
        self._most_weight = most_weight
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._weight = 0
        self._glances: OrderedDict[str, tuple[int, str, Glance]] = OrderedDict()
        self._changes: OrderedDict[str, int] = OrderedDict()
        """The number of each run's last change; who changed last comes last."""
        self._last_change = 0

    # --- changes ------------------------------------------------------------------------------

    def change(self, keys: Iterable[str]) -> None:
        """Note that the store has more of these runs than before."""
        with self._lock:
            for key in keys:
                self._last_change += 1
                self._changes[key] = self._last_change
                self._changes.move_to_end(key)
            while len(self._changes) > _MOST_CHANGES:
                self._changes.popitem(last=False)

    @property
    def last_change(self) -> int:
        """The number of the last change of any run."""
        with self._lock:
            return self._last_change

    def changes(self, after: int, *, limit: int = 100) -> tuple[int, list[str]]:
        """Return which runs changed last after a change, the longest ago first, and up to which change.

        With that number one asks for the next ones: where there are more than so many, none is passed over.
        """
        with self._lock:
            newer = itertools.takewhile(lambda each: each[1] > after, reversed(self._changes.items()))
            found = list(newer)[::-1][:limit]
        return (found[-1][1] if found else after), [key for key, _ in found]

    def change_of(self, key: str) -> int:
        """Return the number of a run's last change since the server started; 0: there was none."""
        with self._lock:
            return self._changes.get(key, 0)

    # --- stories ------------------------------------------------------------------------------

    def view(self, key: str) -> RunView | None:
        """Return the run as it is now; None: there is no such run."""
        entry = self._entry(key)
        with entry.lock:
            return self._refresh(key, entry)

    def view_and_row(self, key: str, *, is_known_to_be_new: bool = False) -> tuple[RunView, RunRow] | None:
        """Return the run as it is now, and what the store says of it.

        That there is something new may be known from elsewhere: another server may have put it there.
        """
        entry = self._entry(key)
        with entry.lock:
            view = self._refresh(key, entry, is_known_to_be_new=is_known_to_be_new)
            return (view, entry.row) if view is not None and entry.row is not None else None

    def profiles(self, key: str) -> list[Record]:
        """Return the last profiles of all ranks, the newest first."""
        entry = self._entry(key)
        with entry.lock:
            self._refresh(key, entry)
            return list(reversed(entry.profiles))

    def glance(self, key: str) -> Glance | None:
        """Return the run in one line; cheap while nothing changes, for as many runs as a list has."""
        row = self._store.run(key)
        return self.glance_at(row) if row is not None else None

    def glance_at(self, row: RunRow) -> Glance:
        """Return a row's run in one line."""
        key, change = row.key, self.change_of(row.key)
        with self._lock:
            known = self._glances.get(key)
            if known is not None and known[:2] == (change, row.heard_at):
                self._glances.move_to_end(key)
                return known[2]
        glance = self._look(row)
        with self._lock:
            self._glances[key] = (change, row.heard_at, glance)
            self._glances.move_to_end(key)
            while len(self._glances) > _MOST_GLANCES:
                self._glances.popitem(last=False)
        return glance

    def _look(self, row: RunRow) -> Glance:
        entry = self._entry(row.key)
        with entry.lock:
            is_new = entry.row is not None and entry.row.heard_at != row.heard_at
            view = self._refresh(row.key, entry, is_known_to_be_new=is_new) or RunView()
            number, step_s = entry.number, entry.step_s
        return Glance(
            key=row.key,
            number=number,
            state=view.state,
            step=view.step,
            step_s=step_s,
            world_size=view.world_size,
            open_incidents=sum(incident.is_open for incident in view.incidents),
            lost_gpu_h=view.bill.lost_gpu_h,
        )

    def _entry(self, key: str) -> _Entry:
        with self._lock:
            if key not in self._entries:
                self._entries[key] = _Entry()
                self._weight += _LEAST_WEIGHT
            self._entries.move_to_end(key)
            while self._weight > self._most_weight and len(self._entries) > 1:
                self._drop(next(iter(self._entries)))
            return self._entries[key]

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        self._weight -= entry.weight if entry is not None else 0

    def _refresh(self, key: str, entry: _Entry, *, is_known_to_be_new: bool = False) -> RunView | None:
        """Take in what is new; the entry's lock is held."""
        change = self.change_of(key)
        if entry.view is not None and entry.seen == change and not is_known_to_be_new:
            return entry.view
        is_all = False
        while not is_all:
            news = self._store.news(key, after=entry.number)
            if news is None:
                self._forget(key)
                return None
            entry.row, kept, ranks = news
            for each in kept:
                entry.add(each)
            is_all = len(kept) < NEWS
        entry.reach(ranks)
        entry.view, entry.seen = entry.story.view(), change
        self._weigh(key, entry, entry.view)
        return entry.view

    def _weigh(self, key: str, entry: _Entry, view: RunView) -> None:
        weight = _LEAST_WEIGHT + len(view.workers) + sum(len(each.stages) for each in view.incidents)
        with self._lock:
            if self._entries.get(key) is entry:  # Else it was dropped meanwhile, with the weight it had.
                self._weight += weight - entry.weight
                entry.weight = weight

    def _forget(self, key: str) -> None:
        with self._lock:
            self._drop(key)
            self._glances.pop(key, None)


Heed = Callable[[str, RunView | None, RunView], None]
"""What a notifier does with a run that changed: its key, the view before, the view after."""
