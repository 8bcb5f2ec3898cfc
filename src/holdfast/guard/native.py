"""Load torch where a verb needs it, with its native code quiet; say how to get it where it is missing."""

from __future__ import annotations

import importlib
import importlib.util
import os

from holdfast.errors import MissingError

_LEVEL = "TORCH_CPP_LOG_LEVEL"


def load_torch(verb: str) -> None:
    """Import torch for a verb, or raise; this process prints no warnings of native code, its workers may."""
    if importlib.util.find_spec("torch") is None:
        raise MissingError(f"holdfast {verb} needs torch: pip install 'holdfast[torch]'")
    is_ours = _LEVEL not in os.environ
    os.environ.setdefault(_LEVEL, "ERROR")
    importlib.import_module("torch")
    if is_ours:  # Read once, at the import.
        del os.environ[_LEVEL]
