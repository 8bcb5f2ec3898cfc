"""Orders for a probe: heard once, by whom they name, at their step, and only by who was there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.job.orders import (
    Due,
    LinkTime,
    OrderReader,
    OrderWriter,
    ProbeOrder,
    ProbeResult,
    order_path,
    page_path,
    read_results,
    result_path,
    write_result,
)


def make_order(**changed: Any) -> ProbeOrder:
    """Return an order for ranks 0 to 3 after step 5, changed where asked."""
    usual: dict[str, Any] = {"id": "p1", "at_step": 5, "ranks": [0, 1, 2, 3], "kinds": ["gemm"]}
    return ProbeOrder(**(usual | changed))


@pytest.fixture
def reader(tmp_path: Path) -> OrderReader:
    """Rank 1, which has begun before anything was asked."""
    return OrderReader(tmp_path, rank=1)


def test_an_order_is_due_at_its_step_and_once(tmp_path: Path, reader: OrderReader) -> None:
    """Not before, and not again."""
    assert reader.due(0) is None
    OrderWriter(tmp_path).write(make_order())
    assert [reader.due(step) for step in range(1, 8)] == [None] * 4 + [Due(make_order(), False)] + [None] * 2


def test_who_hears_of_it_after_its_step_is_late(tmp_path: Path, reader: OrderReader) -> None:
    """It is told so, once, and can call the probe off."""
    OrderWriter(tmp_path).write(make_order())
    assert reader.due(6) == Due(make_order(), is_late=True)
    assert reader.due(7) is None


def test_who_is_not_named_hears_nothing(tmp_path: Path, reader: OrderReader) -> None:
    """An order is for its ranks alone, though all workers of a node look at the same page."""
    OrderWriter(tmp_path).write(make_order(ranks=[0, 2]))
    assert reader.due(5) is None
    assert OrderReader(tmp_path, rank=2).errors == reader.errors == 0


def test_what_was_asked_before_a_worker_began_is_not_for_it(tmp_path: Path) -> None:
    """A worker of the next attempt counts its steps anew."""
    writer = OrderWriter(tmp_path)
    writer.write(make_order())
    reader = OrderReader(tmp_path, rank=1)
    assert reader.due(5) is None
    writer.write(make_order(id="p2", at_step=7))
    assert reader.due(7) == Due(make_order(id="p2", at_step=7), False)


def test_a_newer_order_replaces_the_one_that_waits(tmp_path: Path, reader: OrderReader) -> None:
    """Also when the newer one is for others."""
    writer = OrderWriter(tmp_path)
    writer.write(make_order())
    assert reader.due(3) is None
    writer.write(make_order(id="p2", at_step=9))
    assert [reader.due(5), reader.due(9)] == [None, Due(make_order(id="p2", at_step=9), False)]
    writer.write(make_order(id="p3", at_step=12))
    assert reader.due(10) is None
    writer.write(make_order(id="p4", at_step=12, ranks=[0]))
    assert reader.due(12) is None


def test_another_guard_goes_on_where_the_first_one_died(tmp_path: Path, reader: OrderReader) -> None:
    """The page is the same one, and its count only grows."""
    OrderWriter(tmp_path).write(make_order())
    assert reader.due(5) is not None
    OrderWriter(tmp_path).write(make_order(id="p2", at_step=6))
    assert reader.due(6) == Due(make_order(id="p2", at_step=6), False)


def test_the_same_order_found_twice_is_carried_out_once(tmp_path: Path, reader: OrderReader) -> None:
    """A reader may find the file before the count that belongs to it."""
    writer = OrderWriter(tmp_path)
    writer.write(make_order())
    assert reader.due(5) is not None
    writer.write(make_order())
    assert reader.due(6) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"id": "p1"}', msgspec.json.encode(make_order()).replace(b"p1", b"../p1")],
)
def test_an_order_that_cannot_be_read_is_counted(tmp_path: Path, reader: OrderReader, content: bytes) -> None:
    """It is not carried out, nothing is raised, and the next one is heard."""
    writer = OrderWriter(tmp_path)
    writer.write(make_order())
    order_path(tmp_path).write_bytes(content)
    assert reader.due(5) is None
    assert reader.errors == 1
    writer.write(make_order(id="p2", at_step=6))
    assert reader.due(6) is not None


def test_where_no_page_can_be_made_nothing_is_heard(tmp_path: Path) -> None:
    """The training goes on without."""
    reader = OrderReader(tmp_path / "not_there", rank=1)
    assert (reader.due(5), reader.errors) == (None, 1)


def test_a_full_disk_is_no_page(small_disk: Path) -> None:
    """A page whose memory is not reserved would end the process at the first write."""
    (small_disk / "filler").write_bytes(bytes(8192))
    assert OrderReader(small_disk, rank=1).errors == 1


def test_a_page_of_another_version_is_left_alone(tmp_path: Path) -> None:
    """A writer refuses it, a reader hears nothing, and what is in it stays."""
    page_path(tmp_path).write_bytes(b"something else!!")
    with pytest.raises(ValueError, match=r"orders\.page is not a page of orders of this version"):
        OrderWriter(tmp_path)
    assert OrderReader(tmp_path, rank=1).errors == 1
    assert page_path(tmp_path).read_bytes() == b"something else!!"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"id": "a/b"}, "id is 'a/b'"),
        ({"id": ""}, "id is ''"),
        ({"ranks": []}, r"ranks is \[\]"),
        ({"ranks": [1, 1]}, r"ranks is \[1, 1\]"),
        ({"ranks": [-1]}, r"ranks is \[-1\]"),
        ({"timeout_s": 0.0}, "timeout_s is 0.0"),
        ({"timeout_s": 3600.0}, "timeout_s is 3600.0, expected more than 0 and at most 60.0"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
        ({"size_bytes": 0}, "size_bytes is 0"),
        ({"repeats": 0}, "repeats is 0"),
        ({"passes": [[(0, 1), (1, 2)]]}, "pass 0 is .*each once"),
        ({"passes": [[(0, 1)], [(2, 9)]]}, "pass 1 is"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(changed: dict[str, Any], words: str) -> None:
    """It names the value; a worker could not carry it out, or would stand still for too long."""
    with pytest.raises(ValueError, match=words):
        make_order(**changed)


def test_results_come_back_whole_and_those_that_are_there(tmp_path: Path) -> None:
    """A rank without a result, or with a broken one, is left out; nothing but the results is left behind."""
    link = LinkTime(source=0, target=1, times_s=[0.25])
    done = ProbeResult(rank=1, order="p1", outcome="done", gemm_s=[0.5, 0.75], links=[link])
    broken_off = ProbeResult(rank=3, order="p1", outcome="no_answer", error="the store: no answer")
    for result in (done, broken_off, ProbeResult(rank=0, order="p0", outcome="done")):
        write_result(tmp_path, result)
    result_path(tmp_path, "p1", 2).write_bytes(b'{"rank": 2')
    assert read_results(tmp_path, "p1", range(4)) == [done, broken_off]
    names = ["probe_p0_0.json", "probe_p1_1.json", "probe_p1_2.json", "probe_p1_3.json"]
    assert sorted(os.listdir(tmp_path)) == names  # noqa: PTH208 - names only.
