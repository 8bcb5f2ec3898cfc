"""The incidents of all runs, the newest first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from holdfast.incidents.values import Incident, RunView
from holdfast.serve.store import RunRow
from holdfast.serve.web.context import Context
from holdfast.serve.web.lately import MOST_LISTED, Look
from holdfast.serve.web.trouble import spare
from holdfast.serve.web.views.telling import Told, tell_incident
from holdfast.serve.web.views.words import say_count

MOST = 50
_KINDS = ("slow", "death", "hang")


def incidents_values(context: Context, request: Request, now: datetime) -> dict[str, Any]:
    """Return what the page shows; blocks."""
    query = request.query_params
    kind = query.get("kind", "") if query.get("kind") in _KINDS else ""
    is_open = {"yes": True, "no": False}.get(query.get("open", ""))
    run = query.get("run", "")
    looks = _runs(context, run)
    wanted = [_wanted(row, look.view, kind, is_open) for row, look in looks]
    # Each run's are in order, the newest last: of thousands only those that are shown are looked at.
    newest = list(islice(merge(*wanted, key=lambda each: each[2].opened_at, reverse=True), MOST))
    found = [(row, spare(row.key, _tell, view, incident, now)) for row, view, incident in newest]
    count, opened = _count(looks, kind, is_open)
    asked = {"kind": kind, "open": query.get("open", "") if is_open is not None else "", "run": run}
    more = f"; the newest {MOST} are shown" if count > MOST else ""
    return {
        **asked,
        "found": [(row, told) for row, told in found if told is not None],
        "words": f"{say_count(count, 'incident')}, {opened} open{more}" if count else "",
        "is_filtered": any(asked.values()),
        "source": f"/part/all-incidents?{urlencode({name: word for name, word in asked.items() if word})}",
        "now": now,
    }


def _fits(incident: Incident, kind: str, is_open: bool | None) -> bool:
    return (not kind or incident.kind == kind) and (is_open is None or incident.is_open == is_open)


def _wanted(
    row: RunRow, view: RunView, kind: str, is_open: bool | None
) -> Iterator[tuple[RunRow, RunView, Incident]]:
    return ((row, view, each) for each in reversed(view.incidents) if _fits(each, kind, is_open))


def _count(looks: list[tuple[RunRow, Look]], kind: str, is_open: bool | None) -> tuple[int, int]:
    """Return how many there are, and how many of them are open."""
    if not kind and is_open is None:
        return sum(len(look.view.incidents) for _, look in looks), sum(look.open for _, look in looks)
    found = [each for _, look in looks for each in look.view.incidents if _fits(each, kind, is_open)]
    return len(found), sum(each.is_open for each in found)


def _tell(view: RunView, incident: Incident, now: datetime) -> Told:
    return tell_incident(incident, gpus=view.world_size, now=now)


def _runs(context: Context, run: str) -> list[tuple[RunRow, Look]]:
    rows = [row for row in context.store.runs(limit=MOST_LISTED) if not run or row.key == run]
    return context.lately.look(rows)
