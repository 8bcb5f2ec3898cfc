"""The store as others use it: synchronous, safe to call from many threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from holdfast.serve.store import ordering, queries, retention, taking
from holdfast.serve.store.database import Database
from holdfast.serve.store.incoming import microseconds, read_shipment
from holdfast.serve.store.measuring import measure
from holdfast.serve.store.values import Kept, PacePoint, RankPace, RunRow, StoreSize, Taken
from holdfast.shipment import Order, Shipment


def _utc_now() -> datetime:
    return datetime.now(UTC)


NEWS = 10_000
"""Events at once."""


class Store:
    """Every method raises ``StoreError`` where the database fails; nothing is half kept then."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    @classmethod
    def open(cls, url: str, *, clock: Callable[[], datetime] = _utc_now) -> Store:
        """Open or make the store at ``sqlite:///path``, ``postgresql://…`` or a path; migrate its tables.

        Raise ``InputError`` of one line where that cannot be.
        """
        return cls(Database(url), clock)

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    # --- what guards bring --------------------------------------------------------------------

    def take(self, shipments: Sequence[Shipment], *, heard_at: datetime | None = None) -> list[Taken]:
        """Keep the shipments for good, all of them or none; tell of each what was new, known or refused.

        With a time, they were heard then: what is read from old files is not news of now.
        """
        now = self._clock()
        now_us = microseconds(now.isoformat())
        incoming = [read_shipment(shipment, now_us) for shipment in shipments]
        if not any(item.is_usable for item in incoming):
            return [Taken(taken=0, known=0, refused=item.refused) for item in incoming]
        with self._database.write() as connection:
            return taking.take(connection, incoming, (heard_at or now).astimezone(UTC))

    # --- what people ask ----------------------------------------------------------------------

    def runs(self, *, text: str = "", limit: int = 100, before: str | None = None) -> list[RunRow]:
        """Return runs with the text in name, key, run id, host or command, whom it heard last first.

        ``before`` is the ``heard_at`` of the last one of the page before.
        """
        with self._database.read() as connection:
            return queries.find_runs(connection, text, max(0, limit), before)

    def run(self, key: str) -> RunRow | None:
        """Return the run with this key."""
        with self._database.read() as connection:
            return queries.find_run(connection, key)

    def records(
        self, key: str, *, after: int = 0, limit: int = 10_000, most_bytes: int | None = None
    ) -> list[Kept]:
        """Return a run's events with a higher number, in the order in which they were taken.

        With a limit of bytes fewer may come than there are, but at least one.
        """
        with self._database.read() as connection:
            return queries.find_records(connection, key, after, max(0, limit), most_bytes)

    def last_records(self, key: str, *, skip: int = 0, limit: int = 100) -> list[Kept]:
        """Return a run's last events but so many, the newest first."""
        with self._database.read() as connection:
            return queries.find_last_records(connection, key, max(0, skip), max(0, limit))

    def news(self, key: str, *, after: int) -> tuple[RunRow, list[Kept], list[RankPace]] | None:
        """Return the run, its first events with a higher number, and its ranks as they were seen last.

        The same as ``run``, ``records`` and ``ranks`` together, in less time.
        """
        with self._database.read() as connection:
            row = queries.find_run(connection, key)
            if row is None:
                return None
            found = queries.find_records(connection, key, after, NEWS)
            return row, found, queries.find_ranks(connection, key)

    def pace(self, key: str, *, points: int = 600, since: str | None = None) -> list[PacePoint]:
        """Return at most so many points over the time of the run, or since then; stretches are of one length.

        The median over ranks counts every rank's median of every second, to within 2 %.
        """
        with self._database.read() as connection:
            return queries.find_pace(connection, key, points, since)

    def ranks(self, key: str) -> list[RankPace]:
        """Return each rank as it was seen last, in order."""
        with self._database.read() as connection:
            return queries.find_ranks(connection, key)

    # --- orders and messages ------------------------------------------------------------------

    def add_order(self, key: str, order: Order) -> None:
        """Keep an order until the run's log says what came of it; raise ``InputError`` for no such run."""
        with self._database.write() as connection:
            ordering.add_order(connection, key, order)

    def drop_order(self, key: str, order_id: str) -> None:
        """Forget an order that could not be given."""
        with self._database.write() as connection:
            ordering.drop_order(connection, key, order_id)

    def orders(self, key: str) -> list[Order]:
        """Return those that no ``ordered`` event has answered yet, the oldest first."""
        return [order for order, outcome in self.all_orders(key) if not outcome]

    def all_orders(self, key: str) -> list[tuple[Order, str]]:
        """Return all, each with its outcome: empty while it is open."""
        with self._database.read() as connection:
            return ordering.find_orders(connection, key)

    def mark_sent(self, key: str, incident_id: str, stage: str) -> bool:
        """Note that others were told of an incident; return True the first time only."""
        with self._database.write() as connection:
            return ordering.mark_sent(connection, key, incident_id, stage)

    def unmark_sent(self, key: str, incident_id: str, stage: str) -> None:
        """Forget that: they could not be told."""
        with self._database.write() as connection:
            ordering.unmark_sent(connection, key, incident_id, stage)

    # --- upkeep -------------------------------------------------------------------------------

    def trim(self, *, max_age_s: float | None, max_bytes: int | None) -> int:
        """Remove runs not heard of for so long, then what is over the size; return events and rows removed.

        Of a run heard of within the last hour, only size takes events, the oldest first. Open orders stay.
        Also without limits, single seconds of long ago are forgotten. To be called every few minutes.
        """
        limits = retention.Limits(max_age_s=max_age_s, max_bytes=max_bytes)
        return retention.trim(self._database, limits, self._clock())

    def size(self) -> StoreSize:
        """Count everything."""
        with self._database.read() as connection:
            return measure(connection, self._database.address.file)
