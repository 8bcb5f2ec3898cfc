"""Times, durations and amounts as a person reads them; every number has its unit."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from html import escape

from markupsafe import Markup

from holdfast.diagnose.telling import tell_duration, tell_suspect
from holdfast.incidents.values import Incident

SILENT_S = 30.0
"""After so long without a word a run that should be training is said to be silent."""
_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86_400.0


def parse(at: str) -> datetime | None:
    """Return a moment as it is written in logs; None where it is not one."""
    try:
        found = datetime.fromisoformat(at)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def seconds_since(at: str, now: datetime) -> float | None:
    """Return how long ago it was, 0 where a clock runs ahead."""
    then = parse(at)
    return None if then is None else max(0.0, (now - then).total_seconds())


def say_span(seconds: float) -> str:
    """Return a duration in one or two units."""
    if not math.isfinite(seconds):
        return "not known"
    if seconds < 9.95:
        return tell_duration(seconds) if seconds > 0 else "0 s"
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR_S:
        return _two(seconds, _MINUTE_S, "min", "s") if seconds < 10 * _MINUTE_S else f"{seconds / 60:.0f} min"
    if seconds < 2 * _DAY_S:
        return _two(seconds / 60, _MINUTE_S, "h", "min")
    return f"{seconds / _DAY_S:,.0f} d"


def _two(value: float, size: float, large: str, small: str) -> str:
    whole, rest = divmod(round(value), round(size))
    return f"{whole} {large} {rest} {small}" if rest else f"{whole} {large}"


def say_ago(at: str, now: datetime) -> str:
    """Return how long ago it was, roughly."""
    seconds = seconds_since(at, now)
    if seconds is None:
        return "never"
    if seconds < 5:
        return "just now"
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s ago"
    if seconds < 2 * _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min ago"
    if seconds < 2 * _DAY_S:
        return f"{seconds / _HOUR_S:.0f} h ago"
    return f"{seconds / _DAY_S:,.0f} d ago"


def say_at(at: str) -> str:
    """Return the moment itself."""
    then = parse(at)
    return "" if then is None else f"{then.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def moment(at: str, now: datetime) -> Markup:
    """Return how long ago it was, with the moment itself under the pointer; the script keeps it true."""
    if parse(at) is None:
        return Markup("never")
    return _time(at, say_ago(at, now), " data-ago")


def clock(at: str) -> Markup:
    """Return the time of day, with the date under the pointer."""
    then = parse(at)
    return Markup("") if then is None else _time(at, f"{then.astimezone(UTC):%H:%M:%S}", "")


def _time(at: str, words: str, more: str) -> Markup:
    place = f'datetime="{escape(at)}" title="{escape(say_at(at))}"'
    return Markup(f"<time {place}{more}>{escape(words)}</time>")


def say_step(seconds: float | None) -> str:
    """Return how long a step takes."""
    return "-" if seconds is None else tell_duration(seconds)


def say_gpu_h(hours: float) -> str:
    """Return GPU time in the unit that fits it."""
    if hours == 0:
        return "0 GPU h"
    if abs(hours) < 0.1:
        return f"{60 * hours:.1f} GPU min"
    return f"{hours:.2f} GPU h" if abs(hours) < 100 else f"{hours:,.0f} GPU h"


def say_count(count: int, one: str, many: str = "") -> str:
    """Return a number of things."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def say_times(ratio: float) -> str:
    """Return how many times as much it is."""
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x"


def headline(incident: Incident) -> str:
    """Return an incident in one clause: who is to blame if that is known, else what was seen."""
    if incident.suspects:
        more = len(incident.suspects) - 1
        return tell_suspect(incident.suspects[0]) + (f", and {more} more" if more else "")
    if incident.kind == "death" and len(incident.ranks) > 1:
        return f"{len(incident.ranks)} workers died: ranks {', '.join(map(str, incident.ranks[:12]))}"
    return incident.words
