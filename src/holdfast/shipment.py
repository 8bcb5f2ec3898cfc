"""What guards send to a server that keeps many jobs, and what they are answered; one definition for both.

A shipment may arrive twice, or after a later one: every event has an id, and every summary row a node and a
time, by which a server knows what it has already.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.telemetry import Summary

SHIPMENT_SCHEMA = 1
MOST_BYTES = 4 << 20
"""Of one shipment; more is refused."""
MOST_EVENTS = 2000
MOST_SUMMARIES = 2000
MOST_ORDERS = 16
"""In one receipt."""

OrderKind = Literal["act", "profile", "undo", "set"]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Which job it is about."""

    key: str
    """Different for every run, the same on all its nodes."""
    name: str
    """Of its run directory."""
    run_id: str = ""
    host: str = ""
    """Of node 0."""
    started_at: str = ""
    command: list[str] = []
    versions: dict[str, str] = {}


class Shipment(msgspec.Struct, frozen=True, kw_only=True):
    """What one node has written since the last one."""

    schema: int = SHIPMENT_SCHEMA
    run: Run
    node: int
    events: list[msgspec.Raw] = []
    """Lines of its event log, as they are."""
    summaries: list[Summary] = []


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants of a run."""

    order_id: str
    kind: OrderKind
    words: str = ""
    """``act``: levels, as of ``--act``; ``profile``: nothing; ``undo``: nothing; ``set``: ``name=value``."""
    who: str = ""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The server has what was sent, for good."""

    taken: int
    """Events and rows that were new."""
    known: int = 0
    """Those it had already."""
    refused: list[str] = []
    """Lines that are no events, and why; sending them again will not help."""
    orders: list[Order] = []
    """For node 0 only; an order is repeated until the run's log says what came of it."""
    every_s: float = 1.0
    """How long to wait before the next shipment: a server that has many senders wants them less often."""
