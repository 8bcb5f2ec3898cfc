"""The folder through which a lab and the workers of its job talk: one control file per rank, and back.

``rank_<R>.json`` holds the faults that a rank must know of, ``rank_<R>.steps.jsonl`` what it recorded,
``rank_<R>.sockets.json`` its connections. Files are replaced by rename, so a reader sees whole ones only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.faults import Fault
from holdfast.job.files import replace_file

_FAULTS = msgspec.json.Decoder(list[Fault])
LAB_ENV = "HOLDFAST_LAB"
"""The folder; a worker without it is left alone."""


def control_path(folder: Path, rank: int) -> Path:
    """Return where the faults of a rank stand."""
    return folder / f"rank_{rank}.json"


def rows_path(folder: Path, rank: int) -> Path:
    """Return where a rank records its steps."""
    return folder / f"rank_{rank}.steps.jsonl"


def sockets_path(folder: Path, rank: int) -> Path:
    """Return where a rank names the local ends of its connections."""
    return folder / f"rank_{rank}.sockets.json"


def write_faults(folder: Path, rank: int, faults: Sequence[Fault]) -> None:
    """Tell a rank, live or not yet started, which faults to act out from now on."""
    replace_file(control_path(folder, rank), msgspec.json.encode(list(faults)))


class ControlFile:
    """The reading end, in a worker: one ``stat`` when nothing has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._faults: list[Fault] = []

    def read(self) -> list[Fault]:
        """Return the faults as they stand now, none where there is no file."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return []
        version = (status.st_ino, status.st_mtime_ns)
        if version != self._seen:
            self._faults = _FAULTS.decode(self._path.read_bytes())
            self._seen = version
        return self._faults
