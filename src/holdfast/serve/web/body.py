"""The body of a request, never more of it than is wanted."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request

_LASTS_S = 30.0
"""A sender that is slower keeps others waiting."""


async def read_body(request: Request, *, most: int) -> bytes:
    """Return the whole body; refuse one that is too large before it is read, or as soon as it is."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > most:
        raise HTTPException(413, f"the body has {length[:20]} bytes, expected at most {most}")
    try:
        async with asyncio.timeout(_LASTS_S):
            return await _read(request, most)
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {_LASTS_S:.0f} s") from None


async def _read(request: Request, most: int) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > most:
            raise HTTPException(413, f"the body has more than {most} bytes")
    return bytes(data)
