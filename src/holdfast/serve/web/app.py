"""The server's parts put together: an ASGI application that lives as long as its lifespan."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.errors import StoreError
from holdfast.serve.store import Store
from holdfast.serve.web import api
from holdfast.serve.web.context import Context
from holdfast.serve.web.folder import Folder
from holdfast.serve.web.gate import Gate, Guarding, Tokens
from holdfast.serve.web.headers import Outermost
from holdfast.serve.web.heeding import Heeding
from holdfast.serve.web.intake import Intake
from holdfast.serve.web.lately import MOST_LISTED, Lately
from holdfast.serve.web.live import Live
from holdfast.serve.web.notebook import Notebook
from holdfast.serve.web.openapi import openapi_route
from holdfast.serve.web.orders import Orders
from holdfast.serve.web.others import Others, find_others
from holdfast.serve.web.sessions import Sessions
from holdfast.serve.web.settings import STATE, Settings
from holdfast.serve.web.signing import Signing
from holdfast.serve.web.stream import Streams
from holdfast.serve.web.trouble import answer_refusal
from holdfast.serve.web.writer import Writer
from holdfast.shipment import Shipment

_LOG = logging.getLogger("holdfast.serve")
_TRIM_EVERY_S = 600.0
_HEALTH_FRESH_S = 1.0
"""Anybody may ask how we are; the store is not asked each time."""


def make_app(store: Store, settings: Settings, *, is_ending: Callable[[], bool] = lambda: False) -> Starlette:
    """Return the application for a store that is open; whoever opened it closes it, after the application."""
    live = Live(store)
    context = Context(
        store=store,
        live=live,
        lately=Lately(store, live),
        settings=settings,
        sessions=Sessions(),
        is_ending=is_ending,
    )
    tokens = Tokens(settings.token)
    machinery = _Machinery(context, find_others(context))
    app = Starlette(
        routes=machinery.routes(tokens),
        middleware=[
            Middleware(Outermost, settings=settings),
            Middleware(
                Gate, settings=settings, guarding=Guarding(context.sessions, tokens, context.counters)
            ),
        ],
        exception_handlers={HTTPException: answer_refusal},
        lifespan=machinery.live,
    )
    app.state.context = context
    return app


class _Machinery:
    """Threads and tasks that work while the server is up."""

    def __init__(self, context: Context, others: Others) -> None:
        self._context = context
        self._others = others
        self._heeding = Heeding(context.live, others.heeders)
        self._writer = Writer(context.store, on_taken=self._hear, counters=context.counters)
        self._folder = _make_folder(context, self._writer)
        self._health = _Health(context.store)

    def routes(self, tokens: Tokens) -> list[BaseRoute]:
        """Return all routes; those of the pages come first."""
        context = self._context
        places = self._folder.place_of if self._folder is not None else lambda key: None
        return [
            *self._others.routes,
            Route("/healthz", self._health.answer),
            *Intake(self._writer, context.counters).routes(),
            *Streams(context).routes(),
            *Orders(context, places).routes(),
            *api.routes(context),
            openapi_route(),
            *Signing(context, tokens).routes(),
        ]

    @asynccontextmanager
    async def live(self, app: Starlette) -> AsyncIterator[None]:
        """Start everything, and end it in the other order."""
        self._heeding.start()
        self._context.lately.turns.start()
        self._writer.start()
        if self._folder is not None:
            self._folder.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._trim)
            tasks.start_soon(self._meet)
            yield
            tasks.cancel_scope.cancel()
        await run_in_threadpool(self._end)

    def _end(self) -> None:
        if self._folder is not None:
            self._folder.end()
        self._writer.end()
        self._heeding.end()
        self._context.lately.turns.end()
        for end in self._others.ends:
            end()

    def _hear(self, shipments: Sequence[Shipment]) -> None:
        """Tell those who look on which runs have changed; called by the writer's thread."""
        keys = dict.fromkeys(shipment.run.key for shipment in shipments)
        self._context.live.change(keys)
        self._context.lately.meet(keys)
        self._heeding.change(shipment.run.key for shipment in shipments if shipment.events)
        self._heeding.advance(shipment.run.key for shipment in shipments if shipment.summaries)

    async def _meet(self) -> None:
        """Look at what the store has, before anybody asks."""
        try:
            rows = await run_in_threadpool(self._context.store.runs, limit=MOST_LISTED)
        except StoreError as error:
            _LOG.warning("%s", error)
        else:
            self._context.lately.meet(row.key for row in rows)

    async def _trim(self) -> None:
        settings = self._context.settings
        while True:
            try:
                removed = await run_in_threadpool(
                    self._context.store.trim, max_age_s=settings.keep_age_s, max_bytes=settings.keep_bytes
                )
                if removed:
                    _LOG.info("%d old events and rows were removed from the store", removed)
            except StoreError as error:
                _LOG.warning("%s", error)
            except Exception:
                _LOG.exception("old runs cannot be removed")
            await anyio.sleep(_TRIM_EVERY_S)


def _make_folder(context: Context, writer: Writer) -> Folder | None:
    runs = context.settings.runs
    if runs is None:
        return None
    is_fresh = not context.store.runs(limit=1)
    notebook = Notebook(
        runs / STATE / "followed.json", store_url=context.settings.store_url, is_fresh=is_fresh
    )
    return Folder(runs, writer, notebook, keep_age_s=context.settings.keep_age_s)


class _Health:
    """Whether the store answers, for whoever keeps the server running."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_well = True
        self._asked_s = float("-inf")
        self._lock = anyio.Lock()

    async def answer(self, request: Request) -> Response:
        """Say ok, or that the store is down."""
        async with self._lock:
            if anyio.current_time() - self._asked_s >= _HEALTH_FRESH_S:
                self._is_well = await run_in_threadpool(self._ask)
                self._asked_s = anyio.current_time()
        return PlainTextResponse("ok\n") if self._is_well else PlainTextResponse("store down\n", 503)

    def _ask(self) -> bool:
        try:
            self._store.runs(limit=1)
        except StoreError:
            return False
        return True
