"""What a store takes, and that it takes it once."""

from __future__ import annotations

import threading

import msgspec
import pytest
import sqlalchemy as sa

from holdfast.errors import StoreError
from holdfast.observe.eventlog import decode_line
from holdfast.serve.store import RankPace, Store, Taken, tables
from holdfast.shipment import Run, Shipment
from store.badparts import BAD_EVENTS, BAD_ROWS
from store.storecases import RUN, Clock, at, content, ids, line, row, ship


def test_an_event_comes_back_as_it_was(store: Store) -> None:
    """Whole, with a number."""
    raw = line("a")
    assert store.take([ship([raw])]) == [Taken(taken=1, known=0, refused=[])]
    (kept,) = store.records(RUN.key)
    assert kept.record == decode_line(raw)
    assert kept.number > 0


def test_numbers_rise_and_can_be_asked_for_after_one(store: Store) -> None:
    """A reader who knows the last number gets only what is new, as many as he wants."""
    store.take([ship([line("a"), line("b")])])
    store.take([ship([line("c")])])
    a, b, c = store.records(RUN.key)
    assert a.number < b.number < c.number
    assert store.records(RUN.key, after=a.number) == [b, c]
    assert store.records(RUN.key, after=a.number, limit=1) == [b]
    assert store.records(RUN.key, after=1 << 70) == []


def test_the_last_ones_come_newest_first(store: Store) -> None:
    """A reader who turns pages backwards skips what he has seen."""
    store.take([ship([line(name) for name in "abcde"])])
    a, b, c, d, e = store.records(RUN.key)
    assert store.last_records(RUN.key) == [e, d, c, b, a]
    assert store.last_records(RUN.key, skip=1, limit=2) == [d, c]
    assert store.last_records(RUN.key, skip=4, limit=2) == [a]
    assert store.last_records(RUN.key, skip=1 << 70) == []
    assert store.last_records("nobody") == []


def test_a_line_that_this_version_cannot_read_hides_nothing_after_it(store: Store) -> None:
    """Who asks for two gets the next two that can be read, and takes fewer for the end."""
    store.take([ship([line(name) for name in "abcd"])])
    with store._database.write() as connection:
        connection.execute(sa.update(tables.events).where(tables.events.c.event_id == "b").values(body="{}"))
    assert [kept.record.stamp.event_id for kept in store.records(RUN.key, limit=2)] == ["a", "c"]
    assert ids(store) == ["a", "c", "d"]
    few = store.records(RUN.key, most_bytes=10_000)
    assert [kept.record.stamp.event_id for kept in few] == ["a", "c", "d"]


def test_the_same_again_changes_nothing(store: Store) -> None:
    """Within a shipment, across shipments of one call, and across calls."""
    twice = ship([line("a"), line("a"), line("b")], [row(1, {0: 0.5}), row(1, {0: 0.5})])
    assert store.take([twice, twice]) == [
        Taken(taken=3, known=2, refused=[]),
        Taken(taken=0, known=5, refused=[]),
    ]
    before = content(store)
    assert store.take([twice]) == [Taken(taken=0, known=5, refused=[])]
    assert content(store) == before
    assert ids(store) == ["a", "b"]


def test_the_same_id_in_another_run_is_another_event(store: Store) -> None:
    """Runs do not know each other."""
    other = Run(key="k2", name="other")
    taken = store.take([ship([line("a")]), ship([line("a")], run=other)])
    assert [item.taken for item in taken] == [1, 1]
    assert ids(store, "k1") == ids(store, "k2") == ["a"]


def test_bad_parts_do_not_spoil_the_good_ones(store: Store) -> None:
    """A shipment never fails for what is in it."""
    bad_rows = [msgspec.structs.replace(row(0, {0: 0.5}), **changes) for changes, _ in BAD_ROWS]
    bad = ship(
        [line("a"), *(msgspec.Raw(raw) for raw, _ in BAD_EVENTS), line("b")], [*bad_rows, row(1, {0: 1})]
    )
    (taken,) = store.take([bad])
    assert (taken.taken, taken.known) == (3, 0)
    assert ids(store) == ["a", "b"]
    assert [point.ranks for point in store.pace(RUN.key)] == [1]


def test_many_reasons_are_cut_short(store: Store) -> None:
    """A receipt stays small."""
    (taken,) = store.take([ship([msgspec.Raw(b"1")] * 500)])
    assert len(taken.refused) == 20
    assert taken.refused[-1] == "and 481 more"


@pytest.mark.parametrize(
    "shipment",
    [
        ship([line("a")], run=Run(key="", name="n")),
        ship([line("a")], run=Run(key="k" * 201, name="n")),
        ship([line("a")], run=Run(key="k\0", name="n")),
        Shipment(schema=2, run=RUN, node=0, events=[line("a")]),
        ship([], node=-1),
    ],
)
def test_a_shipment_of_nobody_is_refused_whole(store: Store, shipment: Shipment) -> None:
    """Others in the same call are kept."""
    bad, good = store.take([shipment, ship([line("b")])])
    assert (bad.taken, len(bad.refused), good.taken) == (0, 1, 1)
    assert store.take([shipment]) == [bad]
    assert [run.key for run in store.runs()] == [RUN.key]


def test_words_that_a_database_cannot_keep_are_replaced(store: Store) -> None:
    """A NUL or half a character in a command must not stop the events."""
    run = Run(key="k1", name="a\0b", command=["x\ud800"], versions={"\0": "\0"})
    assert store.take([ship([line("a")], run=run)])[0].taken == 1
    kept = store.run("k1")
    assert kept is not None
    assert (kept.name, kept.command, kept.versions) == ("a\ufffdb", ["x?"], {"\ufffd": "\ufffd"})


def test_node_0_is_believed_about_the_run(store: Store) -> None:
    """Whoever comes first; what it does not say is filled from others."""
    first = Run(key="k1", name="n1", host="h1", run_id="r")
    zero = Run(key="k1", name="n0", host="h0", command=["train.py"])
    for order in ([(1, first), (0, zero)], [(0, zero), (1, first)]):
        for node, run in order:
            store.take([ship([], run=run, node=node)])
        kept = store.run("k1")
        assert kept is not None
        assert (kept.name, kept.host, kept.run_id, kept.command) == ("n0", "h0", "r", ["train.py"])
        assert kept.nodes == 2


def test_a_run_is_counted(store: Store, clock: Clock) -> None:
    """Its events, nodes, and the step of the newest row, which is not the highest after a restart."""
    store.take([ship([line("a")], [row(1, {0: 0.5}, step=90)]), ship([], [row(2, {1: 1}, node=1)], node=1)])
    clock.turn(seconds=5)
    store.take([ship([line("a"), line("b")], [row(3, {0: 0.5}, step=50), row(2, {0: 0.5}, step=91)])])
    run = store.run(RUN.key)
    assert run is not None
    assert (run.events, run.nodes, run.step, run.heard_at) == (2, 2, 50, "2026-11-15T13:00:05.000000+00:00")
    size = store.size()
    assert (size.runs, size.events, size.rows) == (1, 2, 4)
    assert size.bytes > 10_000


def test_each_rank_is_as_it_was_seen_last(store: Store) -> None:
    """Also when an older row comes later, and when a rank has moved to another node."""
    store.take([ship([], [row(5, {0: 0.5, 1: 0.6}, step=9)])])
    store.take([ship([], [row(4, {0: 9.0, 2: 0.7}, step=8)])])
    store.take([ship([], [row(6, {2: 0.8}, node=1, step=10)], node=1)])
    assert store.ranks(RUN.key) == [
        RankPace(rank=0, node=0, step=9, step_s=0.5, own_s=None, at=at(5)),
        RankPace(rank=1, node=0, step=9, step_s=0.6, own_s=None, at=at(5)),
        RankPace(rank=2, node=1, step=10, step_s=0.8, own_s=None, at=at(6)),
    ]


def test_two_threads_may_bring_the_same(store: Store) -> None:
    """Each event and row is new for exactly one of them."""
    shipments = [
        ship(
            [line(f"{node}.{second}", node=node) for second in range(20)],
            [row(second, {node: 1}, node=node) for second in range(20)],
            node=node,
        )
        for node in range(6)
    ]
    taken: list[int] = []
    errors: list[BaseException] = []

    def bring(order: list[Shipment]) -> None:
        try:
            for shipment in order:
                taken.extend(item.taken for item in store.take([shipment, shipments[0]]))
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=bring, args=(order,)) for order in (shipments, shipments[::-1], shipments)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sum(taken) == 6 * 40
    assert len(ids(store)) == len(set(ids(store))) == 120
    assert sum(point.ranks for point in store.pace(RUN.key)) == 20 * 6


def test_a_database_that_fails_keeps_nothing(store: Store, url: str) -> None:
    """The whole call is undone, also what could have been kept, and the next one works."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE nodes RENAME TO elsewhere")
    with pytest.raises(StoreError) as caught:
        store.take([ship([line("a")])])
    assert "nodes" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert store.runs() == []
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO nodes")
    engine.dispose()
    assert store.take([ship([line("a")])])[0].taken == 1
