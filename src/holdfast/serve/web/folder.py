"""Follow a folder of run directories on this machine: what is written there goes into the store.

Thousands of old runs do not delay the new ones: the newest come first, each gets a bounded turn, and those in
which nothing happens are looked at less and less often. Links are not followed, so nothing outside the folder
is read.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from holdfast.errors import StoreError
from holdfast.guard.spool import describe_run, key_of
from holdfast.serve.store import Taken
from holdfast.serve.web.intake import is_good_key
from holdfast.serve.web.notebook import Notebook
from holdfast.serve.web.reading import LOG_NAME, SUMMARIES, News, Places, read_news
from holdfast.serve.web.trouble import say_sometimes
from holdfast.serve.web.writer import EndedError, FullError, Writer
from holdfast.shipment import Run

_LOG = logging.getLogger("holdfast.serve")
_EVERY_S = 1.0
_SCAN_EVERY_S = 2.0
_SAVE_EVERY_S = 10.0
_RARELY_S = 60.0
"""Between two looks at a run in which nothing happens any more."""
_MOST_AT_ONCE = 32
"""Run directories whose lines are written together."""
_PATIENCE_S = 10.0
"""How long the launcher is waited for to write ``run.json``, which holds the run's key."""
_OLD_S = 60.0
"""What was written longer ago was heard then, and not only now."""
_AWAY_S = 5.0
"""Before a store that failed is tried again."""
_MOST_INFO_BYTES = 1 << 20


class _Followed:
    """One run directory."""

    def __init__(self, path: Path, *, changed_s: float, now_s: float, places: Places) -> None:
        self.path = path
        self.changed_s = changed_s
        """When something was written there, by its files' clock."""
        self.seen_s = now_s
        self.next_s = 0.0
        self.places = places
        self.run: Run | None = None


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
        """Read what is due of some runs and write it; return whether others are due already."""
        if now_s - self._scanned_s >= _SCAN_EVERY_S:
            self._scanned_s = now_s
            self._scan(now_s)
        due = [each for each in self._followed.values() if each.next_s <= now_s]
        due.sort(key=lambda each: each.changed_s, reverse=True)
        self._ship([(each, self._look(each, now_s)) for each in due[:_MOST_AT_ONCE]])
        if now_s - self._saved_s >= _SAVE_EVERY_S:
            self._saved_s = now_s
            self._notebook.save()
        return len(due) > _MOST_AT_ONCE

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
        if gone.run is not None:
            self._keys.pop(gone.run.key, None)

    # --- what they hold -----------------------------------------------------------------------

    def _look(self, each: _Followed, now_s: float) -> News | None:
        """Return what is new of a run, and say when to look again."""
        if each.run is None:
            each.run = self._describe(each, now_s)
            if each.run is None:
                each.next_s = now_s + _EVERY_S
                return None
            self._keys[each.run.key] = each.path
        each.changed_s = _changed_s(each.path) or each.changed_s
        if time.time() - each.changed_s > self._keep_age_s:  # The store would forget it at once.
            each.next_s = now_s + _RARELY_S
            return None
        news = read_news(each.path, each.run, each.places)
        idle_s = time.time() - each.changed_s
        each.next_s = now_s + min(max(idle_s / 8, _EVERY_S), _RARELY_S) if news.is_all else now_s
        return news

    def _describe(self, each: _Followed, now_s: float) -> Run | None:
        info = each.path / "run.json"
        size = _regular_size(info)
        if size is None and now_s - each.seen_s < _PATIENCE_S and time.time() - each.changed_s < _PATIENCE_S:
            return None  # Without it, the run would have another key than it will have.
        if size is None or size > _MOST_INFO_BYTES:
            # Also a link, which could lead anywhere, or a pipe, which would hold us up.
            return Run(key=key_of(each.path), name=each.path.name)
        run = describe_run(each.path)
        return run if is_good_key(run.key) else msgspec.structs.replace(run, key=key_of(each.path))

    # --- into the store -----------------------------------------------------------------------

    def _ship(self, found: list[tuple[_Followed, News | None]]) -> None:
        """Write all of it; what could not be written is read again later."""
        waiting = [(each, news, self._put(each, news)) for each, news in found if news is not None]
        troubles = [self._settle(each, news, futures) for each, news, futures in waiting]
        if any(troubles):
            say_sometimes(str(next(filter(None, troubles))))
            self._stop.wait(_AWAY_S)

    def _put(self, each: _Followed, news: News) -> list[Future[Taken]] | None:
        is_old = time.time() - each.changed_s > _OLD_S
        heard_at = datetime.fromtimestamp(each.changed_s, UTC) if is_old else None
        try:
            return [self._writer.put(shipment, heard_at=heard_at) for shipment in news.shipments]
        except (FullError, EndedError):
            return None

    def _settle(self, each: _Followed, news: News, futures: list[Future[Taken]] | None) -> StoreError | None:
        """Wait until all of one run is written, and go on after it; return why that could not be."""
        try:
            for future in futures or []:
                future.result()
        except StoreError as error:
            each.next_s = 0.0
            return error
        except Exception:  # To read the same again for ever would help nobody.
            _LOG.exception("%s: something in it cannot be kept", each.path)
        if futures is None:
            each.next_s = 0.0
        elif news.places != each.places:
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


def _regular_size(file: Path) -> int | None:
    try:
        found = file.lstat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
