"""``POST /api/v1/shipments``: what guards send. The answer comes when it is in the store for good."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.serve.metrics.counters import ServerCounters
from holdfast.serve.store import Taken
from holdfast.serve.web.body import read_body
from holdfast.serve.web.gate import SHIPMENTS, address_of
from holdfast.serve.web.tempo import Tempo
from holdfast.serve.web.trouble import say_sometimes
from holdfast.serve.web.writer import EndedError, FullError, Writer
from holdfast.shipment import (
    MOST_BYTES,
    MOST_EVENTS,
    MOST_ORDERS,
    MOST_SUMMARIES,
    SHIPMENT_SCHEMA,
    Receipt,
    Shipment,
)

_MOST_READING = 64
"""Bodies that are read at a time; each may hold up to twice ``MOST_BYTES``."""
_SMALL_BYTES = 1 << 15
"""Up to here it costs less to decode it than to hand it to a thread."""
_MOST_NODE = 1_000_000
_DECODER = msgspec.json.Decoder(Shipment)
_AGAIN = {"Retry-After": "2"}


class Intake:
    """Reads shipments, hands them to the writer, and answers with what is asked of the run."""

    def __init__(self, writer: Writer, counters: ServerCounters) -> None:
        self._counters = counters
        self._writer = writer
        self._tempo = Tempo()
        self._reading = 0

    def routes(self) -> list[Route]:
        """Return what guards call."""
        return [Route(SHIPMENTS, self.post, methods=["POST"])]

    async def post(self, request: Request) -> Response:
        """Take one shipment."""
        try:
            return await self._take(request)
        except HTTPException as error:
            self._counters.add("rejected")
            # Without the detail, which a caller may choose; the guard that gets the answer tells it.
            reason = f"{error.status_code} {HTTPStatus(error.status_code).phrase}"
            say_sometimes(f"a shipment from {address_of(request)} is refused: {reason}")
            raise

    async def _take(self, request: Request) -> Response:
        is_gzip = _check_headers(request)
        async with self._one_more():
            body = await read_body(request, most=MOST_BYTES)
            shipment, size = await _decode(body, is_gzip=is_gzip)
        taken = await self._keep(shipment, size)
        receipt = Receipt(
            taken=taken.taken,
            known=taken.known,
            refused=taken.refused,
            orders=taken.orders[:MOST_ORDERS],
            every_s=self._tempo.hear(shipment.run.key, shipment.node),
        )
        return Response(msgspec.json.encode(receipt), media_type="application/json")

    async def _keep(self, shipment: Shipment, size: int) -> Taken:
        try:
            future = self._writer.put(shipment, size=size)
        except FullError:
            raise HTTPException(429, "too many shipments wait to be written", _AGAIN) from None
        except EndedError:
            raise HTTPException(503, "the server is about to end", _AGAIN) from None
        return await asyncio.wrap_future(future)

    @asynccontextmanager
    async def _one_more(self) -> AsyncIterator[None]:
        if self._reading >= _MOST_READING:
            raise HTTPException(429, "too many shipments arrive at once", _AGAIN)
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1


def _check_headers(request: Request) -> bool:
    """Refuse what is no JSON; return whether it is compressed."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"Content-Type is {kind[:80]!r}, expected application/json")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise HTTPException(415, f"Content-Encoding is {encoding[:80]!r}, expected gzip or none")
    return encoding == "gzip"


async def _decode(body: bytes, *, is_gzip: bool) -> tuple[Shipment, int]:
    if len(body) <= _SMALL_BYTES and not (is_gzip and is_large(body)):
        return decode_shipment(body, is_gzip=is_gzip)
    return await run_in_threadpool(decode_shipment, body, is_gzip=is_gzip)


def decode_shipment(body: bytes, *, is_gzip: bool) -> tuple[Shipment, int]:
    """Return what a body holds, and its size in bytes; refuse what cannot be a shipment."""
    data = gunzip(body) if is_gzip else body
    try:
        shipment = _DECODER.decode(data)
    except RecursionError:
        raise HTTPException(400, "the shipment cannot be read: it is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise HTTPException(400, f"the shipment cannot be read: {_one_line(error)}") from None
    check_shipment(shipment)
    return shipment, len(data)


def is_large(body: bytes) -> bool:
    """Say whether there is more in it than what is unpacked at once; also of what cannot be unpacked."""
    try:
        return len(zlib.decompressobj(wbits=31).decompress(body, _SMALL_BYTES + 1)) > _SMALL_BYTES
    except zlib.error:
        return True


def gunzip(body: bytes) -> bytes:
    """Return what was compressed, as long as it is no more than a shipment may be."""
    stream = zlib.decompressobj(wbits=31)
    try:
        data = stream.decompress(body, MOST_BYTES + 1)
    except zlib.error as error:
        raise HTTPException(400, f"the body is not in gzip: {_one_line(error)}") from None
    if len(data) > MOST_BYTES:
        raise HTTPException(413, f"the shipment has more than {MOST_BYTES} bytes when unpacked")
    if not stream.eof or stream.unused_data:
        raise HTTPException(400, "the body is not in gzip: expected one whole stream")
    return data


def check_shipment(shipment: Shipment) -> None:
    """Refuse a shipment that is well-formed, but cannot be right."""
    if shipment.schema > SHIPMENT_SCHEMA:
        raise HTTPException(400, f"schema is {shipment.schema}, expected at most {SHIPMENT_SCHEMA}")
    if len(shipment.events) > MOST_EVENTS:
        raise HTTPException(413, f"{len(shipment.events)} events in it, expected at most {MOST_EVENTS}")
    if len(shipment.summaries) > MOST_SUMMARIES:
        raise HTTPException(413, f"{len(shipment.summaries)} summaries, expected at most {MOST_SUMMARIES}")
    if not 0 <= shipment.node <= _MOST_NODE:
        raise HTTPException(400, f"node is {str(shipment.node)[:40]}, expected 0 to {_MOST_NODE}")
    _check_run(shipment)


def _check_run(shipment: Shipment) -> None:
    run = shipment.run
    if not is_good_key(run.key):
        raise HTTPException(400, f"run.key is {run.key[:80]!r}, expected 1 to 200 printable characters, no /")
    for name in ("name", "run_id", "host", "started_at"):
        if len(getattr(run, name)) > 400:
            raise HTTPException(400, f"run.{name} has more than 400 characters")
    if sum(map(len, run.command)) > 100_000 or len(run.command) > 10_000:
        raise HTTPException(400, "run.command is too long")
    if len(run.versions) > 100 or any(len(k) + len(v) > 400 for k, v in run.versions.items()):
        raise HTTPException(400, "run.versions is too long")


def is_good_key(key: str) -> bool:
    """Whether a run can be known by it, in an address too."""
    is_path = "/" in key or "\\" in key or set(key) <= {"."}
    return 0 < len(key) <= 200 and key.isprintable() and key.strip() == key and not is_path


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
