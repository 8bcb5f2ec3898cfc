"""One run: what each part of its page shows."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request

from holdfast.guard.live import NAMES
from holdfast.incidents.values import RunView
from holdfast.serve.pageparts import clip
from holdfast.serve.store import RankPace, RunRow
from holdfast.serve.web.api import find_row
from holdfast.serve.web.context import Context
from holdfast.serve.web.views.diagnosis import show_profile
from holdfast.serve.web.views.figures import make_figures
from holdfast.serve.web.views.looks import LIVE, RUN_LOOKS, Look, shape
from holdfast.serve.web.views.pace import Pace, make_pace
from holdfast.serve.web.views.page import now_utc
from holdfast.serve.web.views.plot import describe, draw_pace
from holdfast.serve.web.views.runs import is_run_silent
from holdfast.serve.web.views.schedule import MOST_BYTES, Drawn, Schedules, problem_of
from holdfast.serve.web.views.tail import read_page
from holdfast.serve.web.views.telling import tell_incident
from holdfast.serve.web.views.words import say_count
from holdfast.serve.web.views.workers import make_grid, open_block, summarize

PARTS = ("header", "figures", "pace", "incidents", "workers", "act", "schedule", "diagnosis", "events")
_POINTS = 500
_MOST_INCIDENTS = 20
_MOST_ORDERS = 8
_WAIT_S = 0.4
"""For a schedule to be drawn; later it is fetched."""
_MOST_COMMAND = 2000
_MARKS = {
    "triangle": Look("slow", "triangle", "warn"),
    "cross": Look("death", "cross", "bad"),
    "bars": Look("hang", "bars", "bad"),
    "square": Look("something was done", "square", "deed"),
    "tick": Look("over", "tick", "good"),
}


class _Asked(NamedTuple):
    """What a request is about."""

    request: Request
    row: RunRow
    view: RunView
    now: datetime
    pace: Pace
    """Empty where no part shows it."""


class RunPages:
    """Gathers what the parts of a run's page show; every call blocks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._schedules = Schedules()
        self._makers: dict[str, Callable[[_Asked], dict[str, Any]]] = {
            "header": self._header,
            "figures": self._figures,
            "pace": self._pace,
            "incidents": self._incidents,
            "workers": self._workers,
            "act": self._act,
            "schedule": self._schedule,
            "diagnosis": self._diagnosis,
            "events": self._events,
        }

    def values(self, request: Request, parts: Iterable[str]) -> dict[str, Any]:
        """Return what these parts show; 404 where there is no such run."""
        row = find_row(self._context, request)
        # Before the view: what comes in between is then fetched once more, and not missed.
        glance = self._context.live.glance_at(row)
        found = self._context.live.view_and_row(row.key)
        if found is None:
            raise HTTPException(404, f"no run {row.key!r}")
        view, row = found
        wanted = tuple(parts)
        asked = _Asked(request, row, view, now_utc(), self._read_pace(row, view, wanted))
        values: dict[str, Any] = {
            "row": row,
            "view": view,
            "number": glance.number,
            "now": asked.now,
            "look": RUN_LOOKS[view.state],
            "is_live": view.state in LIVE,
        }
        for part in wanted:
            values |= self._makers[part](asked)
        return values

    def close(self) -> None:
        """Let go of the thread that draws."""
        self._schedules.close()

    def _read_pace(self, row: RunRow, view: RunView, parts: Sequence[str]) -> Pace:
        is_shown = "figures" in parts or "pace" in parts
        return make_pace(
            self._context.store.pace(row.key, points=_POINTS) if is_shown else [], view.incidents
        )

    def _ranks(self, key: str) -> list[RankPace]:
        return self._context.store.ranks(key)

    def _header(self, asked: _Asked) -> dict[str, Any]:
        words = asked.row.command or list(asked.view.argv)
        return {
            "command": clip(shlex.join(words), _MOST_COMMAND),
            "is_silent": is_run_silent(asked.row, asked.view, asked.now),
        }

    def _figures(self, asked: _Asked) -> dict[str, Any]:
        return {"figures": make_figures(asked.row, asked.view, asked.pace)}

    def _pace(self, asked: _Asked) -> dict[str, Any]:
        pace = asked.pace
        return {
            "pace": pace,
            "pace_svg": draw_pace(pace),
            "pace_words": _tell_span(pace),
            "marks": _marks(pace),
        }

    def _incidents(self, asked: _Asked) -> dict[str, Any]:
        view = asked.view
        newest = list(reversed(view.incidents))
        # What is not over comes first, however long ago it began.
        newest.sort(key=lambda incident: not incident.is_open)
        told = [tell_incident(each, gpus=view.world_size, now=asked.now) for each in newest[:_MOST_INCIDENTS]]
        opened = sum(each.is_open for each in newest)
        return {
            "incidents": told,
            "more_incidents": max(0, len(newest) - _MOST_INCIDENTS),
            "incident_words": f"{say_count(len(newest), 'incident')}, {opened} open" if newest else "",
        }

    def _workers(self, asked: _Asked) -> dict[str, Any]:
        ranks = self._ranks(asked.row.key)
        grid = make_grid(asked.view, ranks)
        first = _number(asked.request, "block")
        opened = open_block(asked.view, ranks, first) if grid.blocks and first is not None else None
        counts = {block.size for block in grid.blocks}
        return {
            "grid": grid,
            "grid_words": summarize(grid),
            "opened": opened,
            "opened_first": first if opened is not None else None,
            "block_words": f"up to {max(counts)} ranks of a node" if counts else "",
            "workers_source": _source(asked, "workers", "block", first if opened is not None else None),
        }

    def _act(self, asked: _Asked) -> dict[str, Any]:
        orders = self._context.store.all_orders(asked.row.key)
        return {
            "orders": list(reversed(orders))[:_MOST_ORDERS],
            "order_place": f"/api/v1/runs/{quote(asked.row.key, safe='')}/orders",
            "set_names": NAMES,
            "set_example": "least_confidence=0.8",
            "waiting_mark": shape("ring"),
            "outcome_mark": shape("tick"),
        }

    def _schedule(self, asked: _Asked) -> dict[str, Any]:
        is_asked = _number(asked.request, "schedule") == 1
        drawn = self._find_schedule(asked.view)
        return {
            "schedule": drawn,
            "is_schedule_shown": is_asked or len(drawn.svg) <= MOST_BYTES,
            "schedule_source": _source(asked, "schedule", "schedule", 1 if is_asked else None),
        }

    def _find_schedule(self, view: RunView) -> Drawn:
        problem = problem_of(view)
        if problem is not None:
            return self._schedules.find(problem, wait_s=_WAIT_S)
        if view.pp > 1:
            return Drawn(words="Not known: the run has not said how many micro-batches a step has.")
        return Drawn(words="Only pipelines (holdfast.Pipeline) follow a schedule of ours; this job is none.")

    def _diagnosis(self, asked: _Asked) -> dict[str, Any]:
        runs, name = self._context.settings.runs, asked.row.name
        found = self._context.live.profiles(asked.row.key)
        return {"profiles": [show_profile(record, runs=runs, name=name) for record in found]}

    def _events(self, asked: _Asked) -> dict[str, Any]:
        page = _number(asked.request, "events")
        return {
            "events": read_page(self._context.store, asked.row, page or 0),
            "is_events_open": page is not None,
            "events_source": _source(asked, "events", "events", page),
        }


def _marks(pace: Pace) -> list[Look]:
    shown = {mark.shape for mark in pace.marks}
    return [look for name, look in _MARKS.items() if name in shown]


def _tell_span(pace: Pace) -> str:
    if len(pace.points) < 2:
        return ""
    return describe(pace).partition("; ")[0].removeprefix("Step time ")


def _number(request: Request, name: str) -> int | None:
    """Return a number of the query; None where there is none that can be used."""
    words = request.query_params.get(name, "")
    return int(words) if words.isascii() and words.isdigit() and len(words) <= 9 else None


def _source(asked: _Asked, part: str, name: str, value: int | None) -> str:
    """Return where the script fetches a part, so that what was opened stays open."""
    return f"/runs/{quote(asked.row.key, safe='')}/part/{part}" + (
        "" if value is None else f"?{name}={value}"
    )
