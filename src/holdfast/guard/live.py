"""Settings that a person may change while a run goes on: as it was started, until somebody says otherwise.

What was changed is kept in ``set.json`` of the run directory, so that a guard that is started again knows it,
and so do the guards of nodes that share the directory.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import InputError
from holdfast.job.files import replace_file

_FILE = "set.json"
_YES, _NO = ("true", "on", "yes", "1"), ("false", "off", "no", "0")


class LiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Those of ``holdfast run`` that need no new start, and one of the guard's own."""

    kill_hung: bool = True
    """Whether a worker of a pipeline that hangs is killed."""
    profile: bool = False
    """Whether all ranks are profiled when the job gets slow."""
    profile_every: int = 0
    """Steps between two profiles of all ranks; 0: only when somebody asks."""
    least_confidence: float = 0.6
    """Who is named with less is not acted upon."""

    def __post_init__(self) -> None:
        if not 0 <= self.profile_every <= 10**9:
            raise ValueError(f"profile_every is {self.profile_every}, expected 0 or more steps")
        if not 0 <= self.least_confidence <= 1:
            raise ValueError(f"least_confidence is {self.least_confidence}, expected 0 to 1")


NAMES = LiveSettings.__struct_fields__


def change_setting(run_dir: Path, words: str) -> str:
    """Change one by ``name=value``, and return what it is now; InputError if that cannot be."""
    name, is_given, text = (part.strip() for part in words.partition("="))
    if not is_given or name not in NAMES:
        raise InputError(f"{words[:100]!r} cannot be set, expected NAME=VALUE with one of {', '.join(NAMES)}")
    kind = {field.name: field.type for field in msgspec.structs.fields(LiveSettings)}[name]
    try:
        value = _switch(text) if kind is bool else msgspec.convert(text, kind, strict=False)
        LiveSettings(**{name: value})
    except (msgspec.ValidationError, ValueError) as error:
        raise InputError(f"{name} cannot be {text[:100]!r}: {error}") from None
    try:
        replace_file(run_dir / _FILE, msgspec.json.encode(_read(run_dir / _FILE) | {name: value}))
    except OSError as error:
        raise InputError(f"{run_dir / _FILE} cannot be written: {error.strerror}") from None
    return f"{name} is {msgspec.json.encode(value).decode()}"


class Live:
    """What is in force now; a file that cannot be read changes nothing."""

    def __init__(self, run_dir: Path, start: LiveSettings) -> None:
        self._file = run_dir / _FILE
        self._start = self._now = start
        self._seen_ns = 0

    def __call__(self) -> LiveSettings:
        with contextlib.suppress(OSError, ValueError, TypeError):
            changed_ns = self._file.stat().st_mtime_ns
            if changed_ns != self._seen_ns:
                self._seen_ns = changed_ns
                content = _read(self._file)
                changed = msgspec.convert(content, LiveSettings)
                given = {name: getattr(changed, name) for name in content if name in NAMES}
                self._now = msgspec.structs.replace(self._start, **given)
        return self._now


def _switch(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise ValueError("expected true or false")
    return text.lower() in _YES


def _read(file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    return {}
