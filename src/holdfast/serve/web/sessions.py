"""Who has signed in: sessions in memory, known by a random cookie, gone when the server ends."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

_LASTS_S = 12 * 3600.0
_MOST = 1000


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One browser that has shown the token."""

    session_id: str
    form_token: str
    """What its forms must carry: ``form_token`` in the body, or the header ``X-Form-Token``."""
    name: str
    """Who it is, as typed at signing in; may be empty."""
    until_s: float


class Sessions:
    """All browsers that are signed in; the oldest makes room for a new one."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, name: str = "") -> Session:
        """Return a new session."""
        session = Session(
            session_id=secrets.token_urlsafe(32),
            form_token=secrets.token_urlsafe(32),
            name=name,
            until_s=self._now() + _LASTS_S,
        )
        with self._lock:
            self._sessions[session.session_id] = session
            while len(self._sessions) > _MOST:
                self._sessions.popitem(last=False)
        return session

    def find(self, session_id: str) -> Session | None:
        """Return the session that a cookie names, while it lasts."""
        with self._lock:
            session = self._sessions.get(session_id)
            if session is not None and session.until_s <= self._now():
                del self._sessions[session_id]
                return None
            return session

    def end(self, session_id: str) -> None:
        """Forget a session."""
        with self._lock:
            self._sessions.pop(session_id, None)
