"""One connection, as uvicorn has it, with less patience for strangers.

Uvicorn waits for ever for the end of a request's head, and reads for ever what follows a request that was
answered before its body had ended. Whoever opens many such connections would keep others out.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""For the head of a request to arrive, from the connection or its first byte on."""
LINGER_S = 5.0
"""For a body that nobody wants any more to end; the caller may not have read the answer yet."""


class Connection(H11Protocol):
    """Ends itself when what is due does not come."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._expect_within(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come; a request that has begun has to be all there soon."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._expect_nothing(unless=self._is_lingering())
        elif self._timer is None:
            self._expect_within(HEAD_S)

    def on_response_complete(self) -> None:
        """Go on with the next request; if the body of this one has not ended, it has to soon."""
        super().on_response_complete()
        if self._is_lingering():
            self._expect_within(LINGER_S)

    def _is_lingering(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE

    def _expect_within(self, limit_s: float) -> None:
        self._expect_nothing()
        self._timer = self.loop.call_later(limit_s, self._give_up)

    def _expect_nothing(self, *, unless: bool = False) -> None:
        if self._timer is not None and not unless:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.abort()
