"""A guard's questions to the workers of its node, and their answers; see ``job.attendant``."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from holdfast.job.attendant import answer_path, ask_path
from holdfast.job.files import replace_file
from holdfast.telemetry import Ask, Lines

_LINES = msgspec.json.Decoder(Lines)


class Questions:
    """One question at a time; a newer one replaces it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked: Ask | None = None

    def ask(self, ask: Ask) -> None:
        """Lay a question where workers find it; what cannot be asked is not answered."""
        self._forget()
        self._asked = ask
        with contextlib.suppress(OSError):
            replace_file(ask_path(self._folder), msgspec.json.encode(ask))

    def answers(self) -> list[Lines]:
        """Return what was answered so far."""
        found = []
        for path in self._paths():
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found.append(_LINES.decode(path.read_bytes()))
        return found

    def _paths(self) -> list[Path]:
        ask = self._asked
        return [answer_path(self._folder, ask.id, rank) for rank in ask.ranks] if ask is not None else []

    def _forget(self) -> None:
        for path in self._paths():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
