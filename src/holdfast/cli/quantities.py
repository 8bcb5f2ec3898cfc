"""Quantities as people type them: counts, numbers, and lengths of time like ``30s``, ``10min``, ``6h``."""

from __future__ import annotations

import math
import re

from holdfast.errors import InputError
from holdfast.simulate.traces import MOST_DAYS

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_UNITS_S = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(s|min|h|d)")


def parse_duration(text: str, flag: str) -> float:
    """Return the seconds that a text like ``10min`` means; ``flag`` is where it was typed."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise InputError(f"{flag} is {text!r}, expected a positive time like 30s, 10min, 6h or 2d")
    seconds = float(match[1]) * _UNITS_S[match[2]]
    if seconds > MOST_DAYS * _UNITS_S["d"]:
        raise InputError(f"{flag} is {text!r}, expected at most {MOST_DAYS}d")
    return seconds


def to_number(text: str) -> float:
    """Return the number that a text is in plain digits, or one that is none (``1_0``, ``inf``, ``x``)."""
    return float(text) if _NUMBER.fullmatch(text.strip()) else math.nan


def show_duration(seconds: float) -> str:
    """Return a length of time in the largest unit that leaves a number of 1 or more."""
    for unit, unit_s in reversed(_UNITS_S.items()):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g} {unit}"
    return f"{seconds:.3g} s"


def parse_count(text: str, flag: str, *, least: int, most: int) -> int:
    """Return a whole number between two others."""
    count = int(text) if re.fullmatch(r"-?[0-9]{1,12}", text.strip()) else None
    if count is None or not least <= count <= most:
        raise InputError(f"{flag} is {text!r}, expected a whole number from {least} to {most}")
    return count


def parse_positive(text: str, flag: str, *, least: float = 1e-9, most: float = 1e9) -> float:
    """Return a number above 0, between two others."""
    number = to_number(text)
    if not least <= number <= most:
        raise InputError(f"{flag} is {text!r}, expected a number above 0, from {least:g} to {most:g}")
    return number
