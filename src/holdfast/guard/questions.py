"""A guard's questions to the workers of its node, and their answers; see ``job.attendant``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.job.attendant import LOOK_EVERY_S, answer_path, ask_path, replace_file
from holdfast.values import Ask, Lines

LOOK_FOR_S = 1.5
_PATIENCE_S = LOOK_FOR_S + 2 * LOOK_EVERY_S + 1.0


class Questions:
    """One question at a time; a newer one replaces it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._asked: Ask | None = None
        self._asked_s = 0.0

    def ask(
        self,
        ranks: Sequence[int],
        *,
        now_s: float,
        duration_s: float = LOOK_FOR_S,
        dumps: str | None = None,
    ) -> None:
        """Ask where ranks spend their time; what cannot be asked is not answered."""
        self._forget()
        self._count += 1
        self._asked = Ask(
            id=f"{os.getpid()}-{id(self):x}-{self._count}",
            ranks=list(ranks),
            duration_s=duration_s,
            dumps=dumps,
        )
        self._asked_s = now_s
        with contextlib.suppress(OSError):
            replace_file(ask_path(self._folder), msgspec.json.encode(self._asked))

    def is_over(self, now_s: float) -> bool:
        """Say whether all have answered, or had the time to."""
        if self._asked is None or now_s - self._asked_s > _PATIENCE_S:
            return True
        return len(self.answers()) == len(self._asked.ranks)

    def answers(self) -> dict[int, Lines]:
        """Return what was answered so far, by rank."""
        found = {}
        for rank in self._asked.ranks if self._asked is not None else ():
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                data = answer_path(self._folder, self._asked_id, rank).read_bytes()
                found[rank] = msgspec.json.decode(data, type=Lines)
        return found

    @property
    def _asked_id(self) -> str:
        return self._asked.id if self._asked is not None else ""

    def _forget(self) -> None:
        for rank in self._asked.ranks if self._asked is not None else ():
            with contextlib.suppress(OSError):
                answer_path(self._folder, self._asked_id, rank).unlink(missing_ok=True)
