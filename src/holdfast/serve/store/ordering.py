"""Orders until they are answered, and which incidents were told to others already."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import sqlalchemy as sa

from holdfast.errors import InputError
from holdfast.serve.store import tables
from holdfast.serve.store.incoming import MOST_WORD, clean
from holdfast.serve.store.queries import run_number
from holdfast.serve.store.statements import insert_new, some
from holdfast.shipment import Order

_DECODER = msgspec.json.Decoder(Order)


def add_order(connection: sa.Connection, key: str, order: Order) -> None:
    """Keep an order for a run that is known; the same one twice is one."""
    run = run_number(connection, key)
    if run is None:
        raise InputError(f"run is {key[:MOST_WORD]!r}, expected one that the store has heard of")
    if not order.order_id or len(order.order_id) > MOST_WORD or clean(order.order_id) != order.order_id:
        raise InputError(f"order_id is {order.order_id[:40]!r}, expected 1 to {MOST_WORD} characters")
    clear = msgspec.structs.replace(order, words=clean(order.words), who=clean(order.who))
    row = {"run": run, "order_id": order.order_id, "body": msgspec.json.encode(clear).decode()}
    insert_new(connection, tables.orders, [row], ["order_id"])


def drop_order(connection: sa.Connection, key: str, order_id: str) -> None:
    """Forget an order that nobody has answered."""
    orders = tables.orders.c
    mine = (orders.run == run_number(connection, key)) & (orders.order_id == order_id)
    connection.execute(sa.delete(tables.orders).where(mine & orders.outcome.is_(None)))


def find_orders(connection: sa.Connection, key: str) -> list[tuple[Order, str]]:
    """Return all orders in the order in which they were given, each with its outcome."""
    orders = tables.orders.c
    query = (
        sa.select(orders.body, orders.outcome)
        .where(orders.run == run_number(connection, key))
        .order_by(orders.number)
    )
    return [(_DECODER.decode(body), outcome or "") for body, outcome in connection.execute(query)]


def open_orders(connection: sa.Connection, runs: Iterable[int]) -> dict[int, list[Order]]:
    """Return, by the runs' numbers, what nobody has answered yet; nothing where there is none at all."""
    orders = tables.orders.c
    found: dict[int, list[Order]] = {}
    for part in some(runs):
        query = sa.select(orders.run, orders.body).where(orders.run.in_(part), orders.outcome.is_(None))
        for run, body in connection.execute(query.order_by(orders.number)):
            found.setdefault(run, []).append(_DECODER.decode(body))
    return found


def mark_sent(connection: sa.Connection, key: str, incident_id: str, stage: str) -> bool:
    """Note it; return whether it was not noted yet. Of a run that is not there nothing is noted."""
    run = run_number(connection, key)
    if run is None:
        return False
    row = {"run": run, "incident_id": clean(incident_id), "stage": clean(stage)}
    return bool(insert_new(connection, tables.sent, [row], ["stage"]))


def unmark_sent(connection: sa.Connection, key: str, incident_id: str, stage: str) -> None:
    """Forget it."""
    sent = tables.sent.c
    connection.execute(
        sa.delete(tables.sent).where(
            sent.run == run_number(connection, key),
            sent.incident_id == clean(incident_id),
            sent.stage == clean(stage),
        )
    )
