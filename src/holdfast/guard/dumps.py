"""Flight Recorder dumps of other nodes: where their workers lay them, and how they get to the controller."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.guard.frames import Question
from holdfast.job.files import replace_file
from holdfast.telemetry import Ask, Lines


class DumpsHere:
    """The dumps of a node whose controller is elsewhere."""

    def __init__(self, folder: Path) -> None:
        """Have them laid into a folder that no other node has, unless all nodes see the controller's."""
        self._folder = folder
        self._ask = ""
        self._left_bytes = 0

    def localise(self, question: Question) -> Ask:
        """Return the question with a folder that workers of this node can write to."""
        ask = question.ask
        self._ask = ""
        if ask.dumps is None or Path(ask.dumps).is_dir():  # The controller has made it: we see the same one.
            return ask
        self._ask, self._left_bytes = ask.id, question.dump_bytes
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
        return msgspec.structs.replace(ask, dumps=str(self._folder))

    def read(self, answers: Iterable[Lines]) -> dict[int, bytes]:
        """Return the dumps of those who have just answered, as far as they may be sent."""
        found: dict[int, bytes] = {}
        for rank in sorted(lines.rank for lines in answers if lines.ask == self._ask):
            with contextlib.suppress(OSError):  # There may be none: not every job records.
                path = _path(self._folder, rank)
                if path.stat().st_size <= self._left_bytes:
                    found[rank] = path.read_bytes()
                    self._left_bytes -= len(found[rank])
        return found


def store_dumps(folder: Path, dumps: Mapping[int, bytes]) -> None:
    """Lay the dumps of another node beside those of this one; what cannot be written is not there."""
    for rank, data in sorted(dumps.items()):
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(_path(folder, rank), data)


def _path(folder: Path, rank: int) -> Path:
    return folder / f"_dump_{rank}"
