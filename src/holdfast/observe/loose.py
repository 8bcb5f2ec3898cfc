"""Values of files that may hold anything: the value if it is of the wanted type, and else an empty one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_LONGEST_TEXT = 200


def as_dict(value: Any) -> dict[str, Any]:
    """Return a dictionary as it is, anything else as an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> Sequence[Any]:
    """Return a list or tuple as it is, anything else as an empty one."""
    return value if isinstance(value, list | tuple) else ()


def as_text(value: Any) -> str:
    """Return the beginning of a text, anything else as an empty one."""
    return value[:_LONGEST_TEXT] if isinstance(value, str) else ""


def as_int(value: Any, otherwise: int) -> int:
    """Return a whole number as it is, anything else as ``otherwise``."""
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
