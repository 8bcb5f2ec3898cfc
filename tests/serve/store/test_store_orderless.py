"""However shipments come, in whatever order and how often, the store holds the same in the end."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.serve.store import Store
from holdfast.shipment import Order, Shipment
from serving.postgres import Postgres
from store.storecases import RUN, Clock, Content, answer, content, line, row, ship

COUNTER = itertools.count()
NODES = st.integers(0, 2)
SECONDS = st.integers(0, 150)


@st.composite
def shipments(draw: st.DrawFn) -> Shipment:
    """Draw a shipment; an id or a time stands for the same event or row wherever it is drawn."""
    node = draw(NODES)
    numbers = draw(st.lists(st.integers(0, 12), max_size=4))
    seconds = draw(st.lists(SECONDS, max_size=4))
    events = [line(f"{node}.{number}", node=node, second=number) for number in numbers]
    rows = [row(s + node / 10, {node: 0.5 + s / 100, node + 3: 0.7}, node=node, step=s) for s in seconds]
    if node == 0 and draw(st.booleans()):
        events.append(answer("answer", "o1"))
    return ship(events, rows, node=node)


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[Shipment], list[list[Shipment]]]:
    """Draw shipments, and how they arrive: shuffled, some again, several at a time."""
    sent = draw(st.lists(shipments(), min_size=1, max_size=6))
    again = draw(st.lists(st.sampled_from(sent), max_size=4))
    arriving = draw(st.permutations([*sent, *again]))
    cuts = sorted(draw(st.lists(st.integers(0, len(arriving)), max_size=3)))
    calls = [arriving[a:b] for a, b in itertools.pairwise([0, *cuts, len(arriving)])]
    return sent, calls


def taken_by(url: str, calls: list[list[Shipment]]) -> tuple[Content, int]:
    """Return what a new store holds after these calls, and how much it said was new."""
    store = Store.open(url, clock=Clock())
    try:
        store.take([ship()])
        store.add_order(RUN.key, Order(order_id="o1", kind="undo"))
        new = sum(item.taken for call in calls for item in store.take(call))
        found = content(store)
        assert new == len(found.events) + store.size().rows
        return found, new
    finally:
        store.close()


def check(one: str, other: str, delivery: tuple[list[Shipment], list[list[Shipment]]]) -> None:
    sent, calls = delivery
    assert taken_by(one, [[shipment] for shipment in sent]) == taken_by(other, calls)


@settings(max_examples=20)
@given(deliveries())
def test_order_and_repetition_do_not_matter(delivery: tuple[list[Shipment], list[list[Shipment]]]) -> None:
    """In SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        check(str(Path(folder) / "one.db"), str(Path(folder) / "other.db"), delivery)


def test_order_and_repetition_do_not_matter_in_postgres(postgres: Postgres) -> None:
    """Nor which database it is."""

    @settings(max_examples=8)
    @given(deliveries())
    def both(delivery: tuple[list[Shipment], list[list[Shipment]]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check(str(Path(folder) / "one.db"), postgres.make_schema(f"any{next(COUNTER)}"), delivery)

    both()
