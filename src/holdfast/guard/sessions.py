"""End whatever a worker left running: every process of its session, in whatever process group."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

_LIMIT_S = 2.0
_TRACKER_S = 0.5


def end_sessions(leaders: Collection[int]) -> None:
    """Kill every process of the sessions that these workers led: data loaders and helpers."""
    ids = set(leaders)
    began_s = time.monotonic()
    while (now_s := time.monotonic()) < began_s + _LIMIT_S and (left := _members(ids)):
        for pid in left:
            # Python's resource tracker removes shared memory when all others are gone, and then ends itself.
            if now_s > began_s + _TRACKER_S or not _is_tracker(pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _is_tracker(pid: int) -> bool:
    try:
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _members(ids: set[int]) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _session(pid) in ids]


def _session(pid: int) -> int:
    """Return the session of a living process, -1 for one that is gone or a mere entry in the table."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return -1
    state, _, _, session = text.rpartition(")")[2].split()[:4]
    return -1 if state in "ZX" else int(session)
