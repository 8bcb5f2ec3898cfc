"""What the store answers."""

from __future__ import annotations

import msgspec

from holdfast.shipment import Order
from holdfast.values import Record


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run that the store has heard of."""

    key: str
    name: str
    run_id: str
    host: str
    started_at: str
    heard_at: str
    """When it was heard of last, on the server's clock; ISO 8601 in UTC."""
    step: int
    """The last one, as the newest summary row has it; 0: none was seen."""
    nodes: int
    """That have sent something."""
    events: int
    command: list[str]
    versions: dict[str, str]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the store."""

    number: int
    """Rises in the order in which the store took a run's events."""
    record: Record


class PacePoint(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a run was over a stretch of time."""

    at: str
    """When the stretch begins."""
    step: int
    """The last one that was finished in it."""
    step_s: float
    """Median over ranks; at most 2 % beside it."""
    slowest_s: float
    slowest_rank: int
    ranks: int
    """That finished a step."""


class RankPace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a rank was when it was seen last."""

    rank: int
    node: int
    step: int
    step_s: float
    own_s: float | None
    """Of that, what it needed for itself; None: not known."""
    at: str


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one shipment."""

    taken: int
    """Events and summary rows that were new."""
    known: int
    """Those that the store had already."""
    refused: list[str]
    """Why others were not kept."""
    orders: list[Order] = []
    """What the run was asked and has not answered yet, the oldest first."""


class StoreSize(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is."""

    runs: int
    events: int
    rows: int
    """Summary rows that were taken of these runs; only what they add up to is kept."""
    bytes: int
    """On disk."""
