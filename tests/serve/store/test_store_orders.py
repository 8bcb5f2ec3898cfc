"""An order's life, and who was told of an incident."""

from __future__ import annotations

import pytest

from holdfast.errors import InputError
from holdfast.serve.store import Store
from holdfast.shipment import Order, Run
from store.storecases import RUN, answer, ship

ACT = Order(order_id="o1", kind="act", words="S2", who="me")
UNDO = Order(order_id="o2", kind="undo")


def test_an_order_is_open_until_the_log_answers_it(store: Store) -> None:
    """Repeated until then, and told with its outcome ever after."""
    store.take([ship()])
    store.add_order(RUN.key, ACT)
    store.add_order(RUN.key, UNDO)
    assert store.orders(RUN.key) == store.orders(RUN.key) == [ACT, UNDO]
    store.take([ship([answer("e1", "o1", "S2 is allowed")])])
    assert store.orders(RUN.key) == [UNDO]
    assert store.all_orders(RUN.key) == [(ACT, "S2 is allowed"), (UNDO, "")]


def test_an_order_that_was_not_given_is_forgotten(store: Store) -> None:
    """Unless it was answered: then it was given."""
    store.take([ship()])
    for name in ("o1", "o2"):
        store.add_order(RUN.key, Order(order_id=name, kind="undo", words="", who="me"))
    store.take([ship([answer("b", "o2")])])
    for name in ("o1", "o2"):
        store.drop_order(RUN.key, name)
    assert [(order.order_id, outcome) for order, outcome in store.all_orders(RUN.key)] == [("o2", "done")]


def test_the_first_answer_stands(store: Store) -> None:
    """Whatever comes later; an answer without words is one too."""
    store.take([ship()])
    store.add_order(RUN.key, ACT)
    store.take([ship([answer("e1", "o1", "")])])
    store.take([ship([answer("e2", "o1", "again")])])
    assert store.all_orders(RUN.key) == [(ACT, "answered")]


def test_an_order_of_another_run_is_not_answered(store: Store) -> None:
    """Though it has the same id."""
    other = Run(key="k2", name="n")
    store.take([ship(), ship(run=other)])
    store.add_order("k1", ACT)
    store.add_order("k2", ACT)
    store.take([ship([answer("e1", "o1")], run=other)])
    assert (store.orders("k1"), store.orders("k2")) == ([ACT], [])


def test_the_same_order_twice_is_one(store: Store) -> None:
    """A button may be pressed twice."""
    store.take([ship()])
    store.add_order(RUN.key, ACT)
    store.add_order(RUN.key, ACT)
    assert store.orders(RUN.key) == [ACT]


def test_an_order_needs_a_run_and_an_id(store: Store) -> None:
    """One line says so."""
    with pytest.raises(InputError, match="run is 'nobody', expected one that the store has heard of"):
        store.add_order("nobody", ACT)
    store.take([ship()])
    with pytest.raises(InputError, match="order_id is ''"):
        store.add_order(RUN.key, Order(order_id="", kind="undo"))
    assert store.orders("nobody") == []


def test_others_are_told_once(store: Store) -> None:
    """Unless that failed, and per stage."""
    store.take([ship()])
    assert store.mark_sent(RUN.key, "i1", "opened")
    assert not store.mark_sent(RUN.key, "i1", "opened")
    assert store.mark_sent(RUN.key, "i1", "closed")
    store.unmark_sent(RUN.key, "i1", "opened")
    assert store.mark_sent(RUN.key, "i1", "opened")
    assert not store.mark_sent("nobody", "i1", "opened")
