"""``POST /api/v1/runs/{key}/orders``: what a person wants of a run.

An order waits in the store until the run's log says what came of it. Guards get it with the answer to their
next shipment; a run of this machine finds it in its run directory at once.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdfast.errors import InputError
from holdfast.guard.levels import parse_levels
from holdfast.serve.web.api import answer, find_row
from holdfast.serve.web.body import read_body
from holdfast.serve.web.context import Context
from holdfast.serve.web.forms import MOST_FORM_BYTES, check_form_token, is_form, read_form, safe_next
from holdfast.shipment import MOST_ORDERS, Order, OrderKind

_LOG = logging.getLogger("holdfast.serve")
_OVER = ("ended", "failed", "stopped", "lost")
Places = Callable[[str], Path | None]
"""The run directory of a run of this machine, by key."""


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the body of the request says."""

    kind: OrderKind
    words: str = ""
    who: str = ""


_WISH = msgspec.json.Decoder(Wish)


class Orders:
    """Takes orders, and lays those for runs of this machine where their guard looks."""

    def __init__(self, context: Context, places: Places) -> None:
        self._context = context
        self._places = places

    def routes(self) -> list[Route]:
        """Return the route that gives orders."""
        return [Route("/api/v1/runs/{key}/orders", self.post, methods=["POST"])]

    async def post(self, request: Request) -> Response:
        """Take one order."""
        form = await read_form(request) if is_form(request) else None
        wish = _wish_of(form) if form is not None else await _read_wish(request)
        order = await run_in_threadpool(self._give, request, wish)
        if form is None:
            return answer(order, 201)
        key = quote(request.path_params["key"], safe="")
        return RedirectResponse(safe_next(form.get("next", f"/runs/{key}")), 303)

    def _give(self, request: Request, wish: Wish) -> Order:
        key = find_row(self._context, request).key
        check_wish(wish)
        view = self._context.live.view(key)
        if view is not None and view.state in _OVER:
            raise HTTPException(409, f"the run is over: {view.state}")
        if len(self._context.store.orders(key)) >= MOST_ORDERS:
            raise HTTPException(409, f"{MOST_ORDERS} orders wait for this run already")
        session = request.state.session
        order = Order(
            order_id=secrets.token_hex(8),
            kind=wish.kind,
            words=wish.words,
            who=wish.who or (session.name if session is not None else "") or "somebody with the token",
        )
        self._keep(key, order)
        _LOG.info(
            "order %s for run %s: %s %s, by %s", order.order_id, key, order.kind, order.words, order.who
        )
        self._context.live.change([key])
        return order

    def _keep(self, key: str, order: Order) -> None:
        run_dir = self._places(key)
        fresh = write_order(run_dir, order) if run_dir is not None else None
        try:
            self._context.store.add_order(key, order)
            if fresh is not None:  # Not before: a guard may answer at once, and nobody would know what.
                self._lay(key, order, fresh)
        except Exception:
            if fresh is not None:  # What nobody has written down should not happen.
                fresh.unlink(missing_ok=True)
            raise

    def _lay(self, key: str, order: Order, fresh: Path) -> None:
        try:
            lay_order(fresh)
        except HTTPException:
            self._context.store.drop_order(key, order.order_id)
            raise


def write_order(run_dir: Path, order: Order) -> Path:
    """Write an order beside those that the guard of node 0 sees; return the file."""
    fresh = run_dir / "orders" / f"{order.order_id}.new"
    try:
        fresh.parent.mkdir(exist_ok=True)
        if fresh.parent.is_symlink():  # The job can write there, and could have us write elsewhere.
            raise HTTPException(409, "orders/ of the run directory is a link, expected a folder")
        fresh.write_bytes(msgspec.json.encode(order))
    except OSError as error:
        raise _cannot_lay(error) from None
    return fresh


def lay_order(fresh: Path) -> None:
    """Let the guard see an order that was written."""
    try:
        fresh.rename(fresh.with_suffix(".json"))
    except OSError as error:
        raise _cannot_lay(error) from None


def _cannot_lay(error: OSError) -> HTTPException:
    return HTTPException(409, f"the order cannot be laid into the run directory: {error.strerror}")


def check_wish(wish: Wish) -> None:
    """Refuse what no guard would understand."""
    if any(len(text) > 200 or not text.isprintable() for text in (wish.words, wish.who)):
        raise HTTPException(400, "words and who are at most 200 printable characters")
    if wish.kind == "act":
        try:
            parse_levels(wish.words)
        except InputError as error:
            raise HTTPException(400, str(error)) from None
    elif wish.kind == "set":
        name, equals, _ = wish.words.partition("=")
        if not (equals and name.strip().isidentifier()):
            raise HTTPException(400, f"words is {wish.words!r}, expected name=value")
    elif wish.words:
        raise HTTPException(400, f"words is {wish.words!r}, expected none for {wish.kind}")


async def _read_wish(request: Request) -> Wish:
    check_form_token(request, request.headers.get("x-form-token", ""))
    body = await read_body(request, most=MOST_FORM_BYTES)
    try:
        return _WISH.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HTTPException(400, f"the order cannot be read: {' '.join(str(error).split())[:200]}") from None


def _wish_of(form: dict[str, str]) -> Wish:
    fields = {name: form[name] for name in ("kind", "words") if name in form}
    try:
        return msgspec.convert(fields, Wish)
    except msgspec.ValidationError as error:
        raise HTTPException(400, f"the order cannot be read: {error}") from None
