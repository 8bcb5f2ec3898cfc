"""What every route of the server works with.

Routes get at it by closure (``routes(context)``), and at what belongs to one request by its state:
``request.state.session`` is the :class:`Session` of a browser that has signed in, else None;
``request.state.has_token`` says that the caller showed the token itself; ``request.state.nonce`` is what an
inline ``<style nonce=…>`` needs (there are no inline scripts). Calls of ``store``, ``live`` and ``lately``
block: make them from a plain ``def`` endpoint, which Starlette runs in a thread, or through
``run_in_threadpool``.

By the time a route is called, the caller may do what the request says: reading was open or a token or
session was shown; a request that changes something has shown the token, or has a session and comes from
our own page. What is left to the route is the form token (``forms.read_form`` checks it).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.serve.metrics.counters import ServerCounters
from holdfast.serve.store import Store
from holdfast.serve.web.lately import Lately
from holdfast.serve.web.live import Live
from holdfast.serve.web.sessions import Sessions
from holdfast.serve.web.settings import Settings


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The server's parts."""

    store: Store
    live: Live
    lately: Lately
    settings: Settings
    sessions: Sessions
    counters: ServerCounters = msgspec.field(default_factory=ServerCounters)
    is_ending: Callable[[], bool] = lambda: False
    """Whether the server is about to end; what would go on for ever ends then."""
