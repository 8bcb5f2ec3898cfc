"""The incidents of all runs, the newest first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import nlargest
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from holdfast.incidents.values import Incident, RunView
from holdfast.serve.store import RunRow
from holdfast.serve.web.context import Context
from holdfast.serve.web.views.telling import tell_incident
from holdfast.serve.web.views.words import say_count

MOST = 100
_MOST_RUNS = 500
_KINDS = ("slow", "death", "hang")


def incidents_values(context: Context, request: Request, now: datetime) -> dict[str, Any]:
    """Return what the page shows; blocks."""
    query = request.query_params
    kind = query.get("kind", "") if query.get("kind") in _KINDS else ""
    is_open = {"yes": True, "no": False}.get(query.get("open", ""))
    run = query.get("run", "")
    found = [
        (row, view, incident)
        for row, view in _runs(context, run)
        for incident in view.incidents
        if (not kind or incident.kind == kind) and (is_open is None or incident.is_open == is_open)
    ]
    newest = nlargest(MOST, found, key=lambda each: each[2].opened_at)
    opened = sum(incident.is_open for _, _, incident in found)
    asked = {"kind": kind, "open": query.get("open", "") if is_open is not None else "", "run": run}
    more = f"; the newest {MOST} are shown" if len(found) > MOST else ""
    return {
        **asked,
        "found": [(row, _tell(view, incident, now)) for row, view, incident in newest],
        "words": f"{say_count(len(found), 'incident')}, {opened} open{more}" if found else "",
        "is_filtered": any(asked.values()),
        "source": f"/part/all-incidents?{urlencode({name: word for name, word in asked.items() if word})}",
        "now": now,
    }


def _tell(view: RunView, incident: Incident, now: datetime) -> Any:
    return tell_incident(incident, gpus=view.world_size, now=now)


def _runs(context: Context, run: str) -> Iterator[tuple[RunRow, RunView]]:
    rows = [row for row in context.store.runs(limit=_MOST_RUNS) if not run or row.key == run]
    for row, look in context.lately.look(rows):
        yield row, look.view
