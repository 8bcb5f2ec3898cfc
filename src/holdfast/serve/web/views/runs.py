"""The list of runs: those in trouble first, then those that train, then those that are over."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup

from holdfast.incidents.values import RunView
from holdfast.serve.store import RunRow
from holdfast.serve.web.context import Context
from holdfast.serve.web.lately import Look as Seen
from holdfast.serve.web.trouble import spare
from holdfast.serve.web.views.looks import KIND_LOOKS, LIVE, RUN_LOOKS, SILENT, Look, urgency
from holdfast.serve.web.views.words import (
    SILENT_S,
    headline,
    moment,
    say_count,
    say_gpu_h,
    say_span,
    say_step,
    seconds_since,
)

MOST_RUNS = 100
_TOLD_LATE_S = 5.0
"""Nobody minds less."""


class Line(NamedTuple):
    """A run in the list."""

    key: str
    name: str
    look: Look
    step: int
    step_s: str
    spark: Markup
    workers: str
    nodes: str
    why: str
    """The trouble in words; empty: there is none."""
    why_look: Look
    lost: str
    saved: str
    heard: Markup
    order: int


def make_line(row: RunRow, seen: Seen, now: datetime) -> Line:
    """Return a run as a line."""
    view = seen.view
    is_silent = is_run_silent(row, view, now)
    return Line(
        key=row.key,
        name=row.name,
        look=SILENT if is_silent else RUN_LOOKS[view.state],
        step=max(view.step, row.step) if seen.step_s is not None or view.step >= 0 else -1,
        step_s=say_step(seen.step_s),
        spark=seen.spark,
        workers=say_count(view.world_size, "worker"),
        nodes=say_count(view.nodes or row.nodes, "node"),
        why=_why(view, is_silent=is_silent),
        why_look=SILENT if is_silent else _why_look(view),
        lost=say_gpu_h(view.bill.lost_gpu_h),
        saved=say_gpu_h(view.bill.saved_gpu_h) if view.bill.saved_gpu_h > 0 else "",
        heard=moment(row.heard_at, now),
        order=urgency(view.state, is_silent=is_silent),
    )


def is_run_silent(row: RunRow, view: RunView, now: datetime) -> bool:
    """Whether a run that should go on was not heard of for too long."""
    quiet_s = seconds_since(row.heard_at, now)
    return view.state in LIVE and quiet_s is not None and quiet_s > SILENT_S


def list_values(context: Context, text: str, now: datetime) -> dict[str, Any]:
    """Return what the list shows; blocks."""
    rows = context.store.runs(text=text, limit=MOST_RUNS)
    looks = context.lately.look(rows)
    found = [spare(row.key, make_line, row, look, now) for row, look in looks]
    lines = [line for line in found if line is not None]
    lines.sort(key=lambda line: line.order)  # Within the same, as it was: last heard first.
    return {
        "rows": lines,
        "text": text,
        "is_cut": len(rows) == MOST_RUNS,
        "late": _say_late(context.lately.late_s(looks)),
        "url": context.settings.url,
        "now": now,
        "source": "/part/runs" + (f"?{urlencode({'text': text})}" if text else ""),
    }


def _say_late(seconds: float) -> str:
    return say_span(seconds) if seconds >= _TOLD_LATE_S else ""


def _why_look(view: RunView) -> Look:
    opened = [incident for incident in view.incidents if incident.is_open]
    return KIND_LOOKS[opened[-1].kind] if opened else RUN_LOOKS[view.state]


def _why(view: RunView, *, is_silent: bool) -> str:
    parts = []
    if is_silent:
        parts.append("nothing was heard of it lately")
    opened = [incident for incident in view.incidents if incident.is_open]
    parts += [headline(incident) for incident in reversed(opened[-2:])]
    if not opened and view.state in ("failed", "lost", "stopped") and view.reason:
        parts.append(view.reason)
    return "; ".join(parts)
