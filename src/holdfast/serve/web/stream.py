"""Server-sent events: a small message when a run has changed, at most one a second for each client.

A message says that there is something new and how the run is in one line; the page asks for the rest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import anyio
import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from holdfast.errors import StoreError
from holdfast.serve.web.api import find_row
from holdfast.serve.web.context import Context
from holdfast.serve.web.live import Glance
from holdfast.serve.web.trouble import spare

_MOST_CLIENTS = 200
_EVERY_S = 1.0
_KEEP_ALIVE_S = 15.0
_MOST_AT_ONCE = 20
"""Runs in the list's messages of one second."""

_Glancing = Callable[[str], Glance | None]


class Streams:
    """All browsers that listen."""

    def __init__(
        self,
        context: Context,
        *,
        most_clients: int = _MOST_CLIENTS,
        every_s: float = _EVERY_S,
        look_every_s: float = _KEEP_ALIVE_S,
    ) -> None:
        self._context = context
        self._most_clients = most_clients
        self._every_s = every_s
        self._look_every_s = look_every_s
        self._clients = 0

    def routes(self) -> list[Route]:
        """Return what a page listens to."""
        return [Route("/api/v1/live", self.runs), Route("/api/v1/runs/{key}/live", self.run)]

    async def run(self, request: Request) -> Response:
        """Tell of one run."""
        row = await run_in_threadpool(find_row, self._context, request)
        return self._stream(request, self._follow_run(row.key))

    async def runs(self, request: Request) -> Response:
        """Tell of all runs, those that change."""
        return self._stream(request, self._follow_all())

    def _stream(self, request: Request, messages: AsyncIterator[bytes]) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if self._clients >= self._most_clients:
            raise HTTPException(503, "too many pages listen", {"Retry-After": "30"})
        return _Stream(self, messages)

    async def _follow_run(self, key: str) -> AsyncIterator[bytes]:
        live, seen, looked_s = self._context.live, -1, float("-inf")
        async for _ in self._beats():
            change, now_s = live.change_of(key), anyio.current_time()
            # A run that is forgotten for its age does not change: it has to be looked for.
            is_due = change != seen or now_s - looked_s >= self._look_every_s
            glances = await self._look([key], live.glance) if is_due else None
            if glances is None:
                yield b""
                continue
            if glances == [None]:
                yield b"event: gone\ndata: {}\n\n"
                return
            yield write_messages(glances) if change != seen else b""
            seen, looked_s = change, now_s

    async def _follow_all(self) -> AsyncIterator[bytes]:
        live = self._context.live
        seen = live.last_change
        yield b"event: listening\ndata: {}\n\n"
        async for _ in self._beats():
            last, keys = live.changes(seen, limit=_MOST_AT_ONCE)
            glances = await self._look(keys, self._glance_or_none) if keys else []
            if glances is not None:
                seen = last
            yield write_messages(glances or [])

    async def _look(self, keys: Sequence[str], glance: _Glancing) -> Sequence[Glance | None] | None:
        """Return runs in one line each; None: the store is away, and may be back at the next beat."""
        try:
            return await run_in_threadpool(lambda: [glance(key) for key in keys])
        except StoreError:
            return None

    def _glance_or_none(self, key: str) -> Glance | None:
        return spare(key, self._context.live.glance, key)

    async def _beats(self) -> AsyncIterator[None]:
        while not self._context.is_ending():
            yield
            await anyio.sleep(self._every_s)

    def come(self) -> None:
        """Count one more."""
        self._clients += 1

    def go(self) -> None:
        """Count one less."""
        self._clients -= 1


class _Stream(StreamingResponse):
    def __init__(self, streams: Streams, messages: AsyncIterator[bytes]) -> None:
        super().__init__(_keep_alive(messages), media_type="text/event-stream")
        # A proxy that waits for the end of the answer would show nothing at all.
        self.headers["X-Accel-Buffering"] = "no"
        self._streams = streams
        streams.come()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.go()


async def _keep_alive(messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Pass messages on; in a long silence add a comment, so that nobody takes the connection for dead."""
    said_s = anyio.current_time()
    async for message in messages:
        if message:
            said_s = anyio.current_time()
            yield message
        elif anyio.current_time() - said_s >= _KEEP_ALIVE_S:
            said_s = anyio.current_time()
            yield b": still here\n\n"


def write_messages(glances: Sequence[Glance | None]) -> bytes:
    """Return messages in the format of server-sent events."""
    return b"".join(
        b"event: changed\nid: %d\ndata: %s\n\n" % (glance.number, msgspec.json.encode(glance))
        for glance in glances
        if glance is not None
    )
