"""Follow a folder of run directories on this machine: what is written there goes into the store.

Thousands of old runs do not delay the new ones: the newest come first, each gets a bounded turn, and those in
which nothing happens are looked at less and less often. Links are not followed, so nothing outside the folder
is read.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from concurrent.futures import Future, wait
from datetime import UTC, datetime
from pathlib import Path

from holdfast.errors import StoreError
from holdfast.serve.store import Taken
from holdfast.serve.web.notebook import Notebook
from holdfast.serve.web.reading import LOG_NAME, MOST_BYTES, SUMMARIES, News, Parcel, Places, read_news
from holdfast.serve.web.trouble import say_sometimes
from holdfast.serve.web.whose import Mark, Whose, by_its_name, describe, mark_of
from holdfast.serve.web.writer import EndedError, FullError, Writer

_LOG = logging.getLogger("holdfast.serve")
_EVERY_S = 1.0
_SCAN_EVERY_S = 2.0
_SAVE_EVERY_S = 10.0
_RARELY_S = 60.0
"""Between two looks at a run in which nothing happens any more."""
_MOST_AT_ONCE = 32
"""Run directories whose lines are written together."""
_MOST_AT_ONCE_BYTES = 16 << 20
"""Of their lines: what is read waits in memory until it is written."""
_PATIENCE_S = 10.0
"""How long the launcher is waited for to write ``run.json``, which holds the run's key."""
_OLD_S = 60.0
"""What was written longer ago was heard then, and not only now."""
_AWAY_S = 5.0
"""Before a store that failed is tried again."""


class _Followed:
    """One run directory."""

    def __init__(self, path: Path, *, changed_s: float, now_s: float, places: Places) -> None:
        self.path = path
        self.changed_s = changed_s
        """When something was written there, by its files' clock."""
        self.seen_s = now_s
        self.next_s = 0.0
        self.places = places
        self.whose: Whose | None = None
        """None: nobody can say yet."""
        self.mark: Mark | None = None
        """Of what says so."""

    @property
    def key(self) -> str | None:
        """Of the run, once it is known."""
        return self.whose.run.key if self.whose is not None else None

    def is_anothers(self) -> bool:
        """Say whether another run was started there since."""
        mark = mark_of(self.path)
        return mark is not None and mark != self.mark


class Folder:
    """Tails every run directory of a folder, in a thread of its own."""

    def __init__(
        self, runs: Path, writer: Writer, notebook: Notebook, *, keep_age_s: float | None = None
    ) -> None:
        self._runs = runs
        self._writer = writer
        self._notebook = notebook
        self._keep_age_s = keep_age_s if keep_age_s is not None else float("inf")
        self._followed: dict[str, _Followed] = {}
        self._keys: dict[str, Path] = {}
        self._scanned_s = float("-inf")
        self._saved_s = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="holdfast-folder", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def end(self) -> None:
        """End, and remember how far it came."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._notebook.save()

    def place_of(self, key: str) -> Path | None:
        """Return the run directory of a run, if it is one of this folder's."""
        return self._keys.get(key)

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                is_busy = self.turn(time.monotonic())
            except Exception:  # Whatever it is, other runs go on.
                _LOG.exception("the folder %s cannot be followed", self._runs)
                is_busy = False
                self._stop.wait(_AWAY_S)
            self._stop.wait(0.0 if is_busy else _EVERY_S)

    def turn(self, now_s: float) -> bool:
        """Read what is due of some runs and write it; return whether there is more already."""
        if now_s - self._scanned_s >= _SCAN_EVERY_S:
            self._scanned_s = now_s
            self._scan(now_s)
        due = [each for each in self._followed.values() if each.next_s <= now_s]
        due.sort(key=lambda each: each.changed_s, reverse=True)
        found = self._read(due[:_MOST_AT_ONCE], now_s)
        self._ship(found)
        if now_s - self._saved_s >= _SAVE_EVERY_S:
            self._saved_s = now_s
            self._notebook.save()
        return len(found) < len(due) or not all(news.is_all for _, news in found if news is not None)

    # --- which runs there are -----------------------------------------------------------------

    def _scan(self, now_s: float) -> None:
        found = set()
        try:
            entries = [entry for entry in os.scandir(self._runs) if not entry.name.startswith(".")]
        except OSError as error:
            say_sometimes(f"the folder {self._runs} cannot be read: {error.strerror}")
            return
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                continue
            found.add(entry.name)
            if entry.name not in self._followed:
                path = Path(entry.path)
                changed_s = _changed_s(path)
                if changed_s is not None:
                    places = self._notebook.places(entry.name)
                    self._followed[entry.name] = _Followed(
                        path, changed_s=changed_s, now_s=now_s, places=places
                    )
        for name in set(self._followed) - found:
            self._forget(name)

    def _forget(self, name: str) -> None:
        gone = self._followed.pop(name)
        self._notebook.forget(name)
        self._leave(gone)

    def _enter(self, each: _Followed) -> None:
        """Let a run be found there, unless another has the same key: then this one is a copy of it."""
        if each.key is not None:
            self._keys.setdefault(each.key, each.path)

    def _leave(self, gone: _Followed) -> None:
        """Let a run not be found there any more, but where there is a copy."""
        if gone.key is None or self._keys.get(gone.key) != gone.path:
            return
        others = (each for each in self._followed.values() if each.key == gone.key and each is not gone)
        heir = next(others, None)
        if heir is not None:
            self._keys[gone.key] = heir.path
        else:
            del self._keys[gone.key]

    # --- what they hold -----------------------------------------------------------------------

    def _read(self, due: list[_Followed], now_s: float) -> list[tuple[_Followed, News | None]]:
        """Look at one after the other, until there is enough to be written."""
        found: list[tuple[_Followed, News | None]] = []
        left = _MOST_AT_ONCE_BYTES
        for each in due:
            news = self._look(each, now_s, most_bytes=min(left, MOST_BYTES))
            found.append((each, news))
            left -= news.size_bytes if news is not None else 0
            if left <= 0:
                break
        return found

    def _look(self, each: _Followed, now_s: float, *, most_bytes: int) -> News | None:
        """Return what is new of a run, and say when to look again."""
        if each.whose is None or each.is_anothers():
            self._describe(each, now_s)
        if each.whose is None:
            each.next_s = now_s + _EVERY_S
            return None
        each.changed_s = _changed_s(each.path) or each.changed_s
        if time.time() - each.changed_s > self._keep_age_s:  # The store would forget it at once.
            each.next_s = now_s + _RARELY_S
            return None
        news = read_news(each.path, each.whose, each.places, most_bytes=most_bytes)
        if each.is_anothers():  # It has just been started again, and some of it may be of the new run.
            each.next_s = now_s
            return None
        idle_s = time.time() - each.changed_s
        each.next_s = now_s + min(max(idle_s / 8, _EVERY_S), _RARELY_S) if news.is_all else now_s
        return news

    def _describe(self, each: _Followed, now_s: float) -> None:
        """Note whose it is; what was read before stays with whoever it was then."""
        mark = mark_of(each.path)  # Before it is read: what comes in between is seen at the next look.
        run = describe(each.path)
        if each.whose is None:
            is_young = now_s - each.seen_s < _PATIENCE_S and time.time() - each.changed_s < _PATIENCE_S
            if mark is None and is_young:
                return  # Without it, the run would have another key than it will have.
            each.whose = Whose(run=run or by_its_name(each.path))
        elif run is not None and run.key == each.key:
            each.whose = Whose(run=run, former=each.whose.former)
        elif run is not None:
            self._leave(each)
            each.whose = Whose(run=run, former=each.whose.run)
        each.mark = mark
        self._enter(each)

    # --- into the store -----------------------------------------------------------------------

    def _ship(self, found: list[tuple[_Followed, News | None]]) -> None:
        """Write all of it; what could not be written is read again later."""
        queued: deque[Future[Taken]] = deque()
        waiting = [(each, news, self._put(each, news, queued)) for each, news in found if news is not None]
        troubles = [self._settle(each, news, futures) for each, news, futures in waiting]
        if any(troubles):
            say_sometimes(str(next(filter(None, troubles))))
            self._stop.wait(_AWAY_S)
        elif any(futures is None for _, _, futures in waiting):
            self._stop.wait(_EVERY_S)

    def _put(self, each: _Followed, news: News, queued: deque[Future[Taken]]) -> list[Future[Taken]] | None:
        """Hand over all of one run, and add it to what was handed over before; None: it cannot be now."""
        is_old = time.time() - each.changed_s > _OLD_S
        heard_at = datetime.fromtimestamp(each.changed_s, UTC) if is_old else None
        futures: list[Future[Taken]] = []
        for parcel in news.parcels:
            future = self._put_one(parcel, heard_at, queued)
            if future is None:
                return None
            futures.append(future)
            queued.append(future)
        return futures

    def _put_one(
        self, parcel: Parcel, heard_at: datetime | None, queued: deque[Future[Taken]]
    ) -> Future[Taken] | None:
        while not self._stop.is_set():
            try:
                return self._writer.put(parcel.shipment, size=parcel.size_bytes, heard_at=heard_at)
            except EndedError:
                return None
            except FullError:
                if not queued:  # It is full of what others have sent; they go first.
                    return None
                self._await(queued.popleft())
        return None

    def _await(self, future: Future[Taken]) -> bool:
        """Wait until it is answered; False: the server ends before that."""
        while not future.done() and not self._stop.is_set():
            wait([future], timeout=_EVERY_S)
        return future.done()

    def _settle(self, each: _Followed, news: News, futures: list[Future[Taken]] | None) -> StoreError | None:
        """Wait until all of one run is written, and go on after it; return why that could not be."""
        if futures is None or not all(map(self._await, futures)):
            each.next_s = 0.0
            return None
        try:
            for future in futures:
                future.result()
        except StoreError as error:
            each.next_s = 0.0
            return error
        except Exception:  # To read the same again for ever would help nobody.
            _LOG.exception("%s: something in it cannot be kept", each.path)
        if news.places != each.places:
            each.places = news.places
            self._notebook.note(each.path.name, news.places)
        return None


def _changed_s(path: Path) -> float | None:
    """Return when a run directory was last written to; None: it is none."""
    times = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if LOG_NAME.fullmatch(entry.name) or entry.name == SUMMARIES:
                    times.append(entry.stat(follow_symlinks=False).st_mtime)
    except OSError:
        return None
    return max(times, default=None)
