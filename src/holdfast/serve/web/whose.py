"""Whose run directory it is: its ``run.json`` says so, and another comes when a run is started there again.

A launcher writes it before its first event. So what was read while it stayed the same is of no later run.
"""

from __future__ import annotations

import contextlib
import os
from datetime import datetime
from pathlib import Path

import msgspec

from holdfast.guard.rundir import RunInfo
from holdfast.guard.spool import key_of, run_of
from holdfast.serve.web.inside import open_file, open_folder
from holdfast.serve.web.intake import is_good_key
from holdfast.shipment import Run

_INFO = "run.json"
_MOST_BYTES = 1 << 20
_DECODER = msgspec.json.Decoder(RunInfo)

Mark = tuple[int, int, int]
"""By which one ``run.json`` is told from another: inode, time of its last change, size."""


class Whose(msgspec.Struct, frozen=True, kw_only=True):
    """To whom lines of a run directory belong."""

    run: Run
    former: Run | None = None
    """Who was there before: it has what happened before the run was started."""

    def owner(self, at: str) -> Run:
        """Return whose a line of this time is."""
        return self.former if self.former is not None and self._is_before(at) else self.run

    def _is_before(self, at: str) -> bool:
        try:
            return datetime.fromisoformat(at) < datetime.fromisoformat(self.run.started_at)
        except (ValueError, TypeError):  # No times, or such that cannot be compared.
            return False


def mark_of(run_dir: Path) -> Mark | None:
    """Return the mark of what is there now; None where nothing is."""
    try:
        found = (run_dir / _INFO).lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def describe(run_dir: Path) -> Run | None:
    """Return which run it is; None where nothing there can be read."""
    with open_folder(run_dir) as folder, open_file(folder, _INFO) as fd:
        if fd is not None:
            # Of a file that is far too long only a part, which is no JSON.
            with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError, RecursionError):
                run = run_of(_DECODER.decode(os.pread(fd, _MOST_BYTES, 0)), run_dir)
                return run if is_good_key(run.key) else msgspec.structs.replace(run, key=key_of(run_dir))
    return None


def by_its_name(run_dir: Path) -> Run:
    """Return a run of which nothing else is known."""
    return Run(key=key_of(run_dir), name=run_dir.name)
