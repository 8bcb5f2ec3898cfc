"""Names for things that outlive a process (cgroups, namespaces), so that leftovers can be told and swept.

A name carries the owner's process id and start time; when no such process lives, the thing is a leftover.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

PREFIX = "holdfast-lab"
_NAME = re.compile(rf"{PREFIX}-(\d+)-(\d+)-.+")


def owned_name(what: str) -> str:
    """Return a name that says which process it belongs to."""
    return f"{PREFIX}-{os.getpid()}-{_started(os.getpid())}-{what}"


def is_leftover(name: str) -> bool:
    """Say whether a name is one of ours whose owner is gone."""
    match = _NAME.fullmatch(name)
    return match is not None and _started(int(match[1])) != match[2]


def _started(pid: int) -> str | None:
    """Return the start time of a process in clock ticks since boot, None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]
