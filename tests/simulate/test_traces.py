"""Traces: what is read from text, what is drawn, and what is refused by row."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.simulate.fitting import fit
from holdfast.simulate.traces import (
    NodeChange,
    Trace,
    make_fixed,
    make_poisson,
    parse_counts,
    parse_nodes,
    parse_trace,
)

SPOT = Path(os.environ.get("HOLDFAST_DATA") or "/nowhere") / "spot"


def rng() -> random.Random:
    """A generator that always draws the same."""
    return random.Random(7)


def counts_of(trace: Trace) -> list[tuple[float, int]]:
    """How many nodes there are from each moment on."""
    count, series = len(trace.nodes), [(0.0, len(trace.nodes))]
    for change in trace.changes:
        count += 1 if change.is_up else -1
        if series[-1][0] == change.at_s:
            series.pop()
        series.append((change.at_s, count))
    return series


def test_rows_of_nodes_are_read() -> None:
    """Who is added at time 0 is there from the beginning, the others come and go."""
    trace = parse_nodes("0,add,a\n0,add,b\n\n1500, remove , a\r\n2000,add,c\n")
    assert (trace.nodes, trace.duration_s) == (("a", "b"), 2.0)
    assert trace.changes == (NodeChange(1.5, "a", False), NodeChange(2.0, "c", True))
    assert trace.removals == 1


def test_rows_of_counts_are_read() -> None:
    """Nodes are made up, as many as the rows say, and equal counts are no change."""
    text = (
        "2021-12-11, 23:59:00, 3\n2021-12-11, 23:59:30, 3\n2021-12-12, 00:00:00, 1\n2021-12-12, 00:01:00, 2\n"
    )
    trace = parse_counts(text, rng())
    assert counts_of(trace) == [(0.0, 3), (60.0, 1), (120.0, 2)]
    assert trace.duration_s == 120.0


def test_counts_that_go_back_in_time_are_overruled_by_later_rows() -> None:
    """A repeated row with a later time than the news below it does not bring the old count back."""
    old = "2022-01-01, 10:00:00, 5\n2022-01-01, 10:01:00, 5\n2022-01-01, 10:02:00, 5\n"
    new = "2022-01-01, 10:01:30, 4\n2022-01-01, 10:02:30, 4\n"
    assert counts_of(parse_counts(old + new, rng())) == [(0.0, 5), (90.0, 4)]


def test_format_is_told_by_the_first_row() -> None:
    """Both formats are read by the same call."""
    assert parse_trace("0,add,a\n1,remove,a\n", rng()).nodes == ("a",)
    assert len(parse_trace("2022-01-01, 10:00:00, 2\n2022-01-01, 10:00:01, 1\n", rng()).nodes) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there are no rows, expected 'MILLISECONDS,add|remove,NODE' or"),
        ("hello\n", "row 1 is 'hello', expected 'MILLISECONDS,add|remove,NODE' or 'YYYY"),
        ("0,add,a\n\n5,drop,a\n", "row 3 is '5,drop,a', expected 'MILLISECONDS,add|remove,NODE'"),
        ("0,add,a\n-5,remove,a\n", "row 2 is '-5,remove,a'"),
        ("0,add,a\n9,remove,a\n8,add,b\n", "row 3 is '8,add,b', expected 9 ms or later"),
        ("0,add,a\n9,add,a\n", "row 2 is '9,add,a', expected a node that is not there yet"),
        ("0,add,a\n9,remove,b\n", "row 2 is '9,remove,b', expected a node that is there"),
        ("0,add,a\n0,add,b\n", "the trace has no length"),
        ("2022-02-30, 10:00:00, 5\n", "row 1 is '2022-02-30, 10:00:00, 5', expected 'YYYY-MM-DD"),
        (
            "2022-02-20, 10:00:00, 5\n2022-02-20, 10:00:05\n",
            "row 2 is '2022-02-20, 10:00:05', expected 'YYYY",
        ),
        ("2022-02-20, 10:00:00, 5\n2022-02-20, 10:00:05, 100001\n", "row 2"),
        ("2022-02-20, 10:00:00, 5\n2022-02-20, 09:00:05, 4\n", "row 2 is .*not before row 1"),
        (
            "2022-02-20, 10:00:00, 5\n2022-02-20, 13:00:00, 5\n2022-02-20, 11:00:05, 4\n",
            "row 3 is .*at most an hour before the row above",
        ),
        ("2022-02-20, 10:00:00, 5\n", "the trace has no length"),
    ],
)
def test_bad_row_is_named(text: str, message: str) -> None:
    """The message has the row, what it holds and what was expected."""
    with pytest.raises(InputError, match=message.replace("|", r"\|").replace("(", r"\(")):
        parse_trace(text, rng())


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 30)), min_size=2, max_size=30))
def test_any_counts_are_followed(rows: list[tuple[int, int]]) -> None:
    """Whatever the rows and their order within the hour, the trace ends with the last one."""
    text = "2022-02-20, 10:00:00, 9\n" + "\n".join(
        f"2022-02-20, 10:{second // 60:02}:{second % 60:02}, {count}" for second, count in rows
    )
    if all(second == 0 for second, _ in rows):
        return
    end = rows[-1][0]
    if end == 0:  # The last row takes back everything: no time is left.
        with pytest.raises(InputError, match="no length"):
            parse_counts(text, rng())
        return
    trace = parse_counts(text, rng())
    assert (trace.duration_s, counts_of(trace)[-1][1]) == (end, rows[-1][1])


def test_fixed_interval_removes_half_and_ends() -> None:
    """Sixteen of 32 nodes go, one each time, no two the same; the trace ends with the last."""
    trace = make_fixed(nodes=32, every_s=600, rng=rng())
    assert [change.at_s for change in trace.changes] == [600.0 * n for n in range(1, 17)]
    assert len({change.node for change in trace.changes}) == 16
    assert (len(trace.nodes), trace.duration_s, trace.removals) == (32, 9600.0, 16)


def test_poisson_has_the_rate_that_was_asked_for() -> None:
    """Over 64 nodes and 100 days with a rate of 1 a day, minus repairs, about 6,150 failures are expected."""
    trace = make_poisson(nodes=64, per_node_day=1.0, repair_s=3600, duration_s=100 * 86_400, rng=rng())
    expected = 64 * 100 / (1 + 1 / 24)
    assert abs(trace.removals - expected) < 4 * expected**0.5


def test_poisson_brings_nodes_back_after_the_repair() -> None:
    """Every node is up, then down for exactly the repair time, then up again, in the order of time."""
    trace = make_poisson(nodes=5, per_node_day=3.0, repair_s=1800, duration_s=10 * 86_400, rng=rng())
    times = [change.at_s for change in trace.changes]
    assert times == sorted(times)
    for node in trace.nodes:
        mine = [change for change in trace.changes if change.node == node]
        assert [change.is_up for change in mine] == [bool(n % 2) for n in range(len(mine))]
        gaps = [up.at_s - down.at_s for down, up in zip(mine[::2], mine[1::2], strict=False)]
        assert gaps == pytest.approx([1800.0] * len(gaps))


@pytest.mark.parametrize("seed", range(5))
def test_same_seed_gives_the_same_trace(seed: int) -> None:
    """And another seed another one."""

    def draw(number: int) -> Trace:
        return make_poisson(
            nodes=8, per_node_day=2, repair_s=600, duration_s=86_400, rng=random.Random(number)
        )

    assert draw(seed) == draw(seed)
    assert draw(seed) != draw(seed + 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"per_node_day": 0.0}, "failures per node-day is 0"),
        ({"repair_s": -1.0}, "the repair time is -1"),
        ({"duration_s": float("nan")}, "the length is nan"),
        ({"nodes": 0}, "0 nodes, expected 1 to 100000"),
        ({"per_node_day": 1e9, "duration_s": 1e9}, "about 66[0-9,]* failures, expected at most 1,000,000"),
    ],
)
def test_impossible_poisson_is_refused(arguments: dict[str, float], message: str) -> None:
    """Each number is named."""
    good = {"nodes": 4, "per_node_day": 1.0, "repair_s": 60.0, "duration_s": 3600.0}
    with pytest.raises(InputError, match=message):
        make_poisson(**(good | arguments), rng=rng())  # type: ignore[arg-type]


@pytest.mark.external
def test_real_spot_trace_of_nodes_is_read() -> None:
    """The AWS P3 trace: 167 removals in 11.4 hours, 32 nodes at most, about 24 on average."""
    if not SPOT.is_dir():
        pytest.skip("needs HOLDFAST_DATA")
    trace = parse_trace((SPOT / "p3-trace.csv").read_text(), rng())
    series = counts_of(trace)
    ends = [at_s for at_s, _ in series[1:]] + [trace.duration_s]
    mean = sum(n * (end - at_s) for (at_s, n), end in zip(series, ends, strict=True)) / trace.duration_s
    assert (trace.removals, max(count for _, count in series)) == (167, 32)
    assert trace.duration_s / 3600 == pytest.approx(11.4, abs=0.05)
    assert mean == pytest.approx(24, abs=0.5)


@pytest.mark.external
def test_real_spot_trace_of_counts_is_read_and_fitted() -> None:
    """The GCP A100 trace: 17 to 64 instances, 154 lost in 36 drops over 27 hours."""
    if not SPOT.is_dir():
        pytest.skip("needs HOLDFAST_DATA")
    trace = parse_trace((SPOT / "gcp-a100-east1b.txt").read_text(), rng())
    counts = [count for _, count in counts_of(trace)]
    assert (min(counts), max(counts), trace.removals) == (17, 64, 154)
    assert trace.duration_s / 3600 == pytest.approx(27, abs=0.1)
    assert len({change.at_s for change in trace.changes if not change.is_up}) == 36
    fitted = fit(trace, 32, rng())
    assert min(len(fitted.live), *_lives(fitted.live, fitted.changes)) == 9


def _lives(live: tuple[int, ...], changes: tuple[object, ...]) -> list[int]:
    count, found = len(live), []
    for change in changes:
        count += len(change.came) - len(change.left)  # type: ignore[attr-defined]
        found.append(count)
    return found


def test_large_counts_take_no_longer_than_their_nodes() -> None:
    """Half of 100,000 nodes leave and as many others come, by share and by name; all are accounted for."""
    counts = (100_000, 50_000, 100_000)
    rows = [f"2024-01-01, 0{hour}:00:00, {count}" for hour, count in enumerate(counts)]
    trace = parse_trace("\n".join(rows), random.Random(0))
    assert (len(trace.changes), trace.removals) == (100_000, 50_000)
    assert fit(trace, 32, random.Random(0)).failures == 16
    assert 0 < fit(trace, 32, random.Random(0), "clip").failures <= 32


def test_more_comings_and_goings_than_a_machine_holds_are_refused() -> None:
    """Before they fill its memory."""
    rows = [f"2024-01-01, 00:00:{row:02}, {100_000 * (row % 2)}" for row in range(60)]
    with pytest.raises(InputError, match="more than 2,000,000 nodes come or go"):
        parse_trace("\n".join(rows), random.Random(0))
