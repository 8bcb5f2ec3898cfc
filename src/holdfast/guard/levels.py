"""Which actions are allowed: what the run was started with, until somebody says otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.errors import InputError
from holdfast.job.files import replace_file
from holdfast.mitigate.ledger import Level

_FILE = "act.json"
_DOABLE: tuple[Level, ...] = ("S2", "S3", "S4")
_NAMED: dict[str, Level] = {level.lower(): level for level in _DOABLE}


class _Word(msgspec.Struct, frozen=True):
    act: str


_WORD = msgspec.json.Decoder(_Word)


def parse_levels(words: str) -> frozenset[Level]:
    """Return the levels of ``all``, ``none`` or a list such as ``S2,S3``; what is done may be undone."""
    text = words.strip().lower()
    if text in ("", "none"):
        return frozenset()
    if text == "all":
        return frozenset(["undo", *_DOABLE])
    found = {_NAMED.get(word.strip()) for word in text.split(",")}
    if None in found:
        raise InputError(f"act is {words!r}, expected all, none, or a list of {', '.join(_NAMED.values())}")
    return frozenset(["undo", *(level for level in found if level is not None)])


def change_levels(run_dir: Path, words: str) -> None:
    """Allow other actions to a run from now on."""
    parse_levels(words)
    if not (run_dir / "run.json").is_file():
        raise InputError(f"{run_dir} is no run directory: it has no run.json")
    try:
        replace_file(run_dir / _FILE, msgspec.json.encode(_Word(words)))
    except OSError as error:
        raise InputError(f"{run_dir / _FILE} cannot be written: {error.strerror}") from error


class Allowed:
    """What is allowed now; a file that cannot be read changes nothing."""

    def __init__(self, run_dir: Path, words: str) -> None:
        self._file = run_dir / _FILE
        self._levels = parse_levels(words)
        self._seen_ns = 0
        self.on_change: Callable[[], None] = lambda: None
        """Called when somebody has said what is allowed, the same as before or not."""

    def __call__(self) -> frozenset[Level]:
        with contextlib.suppress(OSError, msgspec.MsgspecError, InputError):
            changed_ns = self._file.stat().st_mtime_ns
            if changed_ns != self._seen_ns:
                self._seen_ns = changed_ns
                self._levels = parse_levels(_WORD.decode(self._file.read_bytes()).act)
                self.on_change()
        return self._levels
