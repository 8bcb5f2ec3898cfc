"""Up to where run directories were read, so that a server that starts again need not read them all.

It belongs to one store; for another, or one that is empty, everything is read from its beginning.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from pathlib import Path

import msgspec

from holdfast.job.files import replace_file
from holdfast.observe.tail import Place
from holdfast.serve.web.reading import Places

_LOG = logging.getLogger("holdfast.serve")


class _Page(msgspec.Struct, kw_only=True):
    store: str
    runs: dict[str, dict[str, Place]] = {}


_PAGE = msgspec.json.Decoder(_Page)


class Notebook:
    """One file; losing it costs time, and nothing else: what is read twice is known to the store."""

    def __init__(self, file: Path, *, store_url: str, is_fresh: bool) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._is_changed = False
        # The address may hold a password.
        self._page = _Page(store=hashlib.sha256(store_url.encode()).hexdigest())
        if not is_fresh:
            self._read()

    def places(self, name: str) -> Places:
        """Return up to where a run directory was read."""
        with self._lock:
            return dict(self._page.runs.get(_spell(name), {}))

    def note(self, name: str, places: Places) -> None:
        """Note that the store has it up to here."""
        with self._lock:
            self._page.runs[_spell(name)] = dict(places)
            self._is_changed = True

    def forget(self, name: str) -> None:
        """Forget a run directory that is gone."""
        with self._lock:
            self._is_changed |= self._page.runs.pop(_spell(name), None) is not None

    def save(self) -> None:
        """Write what was noted since the last time."""
        with self._lock:
            if not self._is_changed:
                return
            data, self._is_changed = msgspec.json.encode(self._page), False
        try:
            replace_file(self._file, data)
        except OSError as error:
            _LOG.warning("%s cannot be written: %s", self._file, error.strerror)

    def _read(self) -> None:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            page = _PAGE.decode(self._file.read_bytes())
            if page.store == self._page.store:
                self._page = page


def _spell(name: str) -> str:
    """Return a name that JSON can hold; that of a folder need not be of characters."""
    return name.encode(errors="backslashreplace").decode()
