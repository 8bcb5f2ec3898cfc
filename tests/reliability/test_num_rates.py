"""Failure rates from outages, and what they mean for jobs: small records with known answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from holdfast.reliability.outagerates import rates_of_outages
from holdfast.reliability.rates import bucket_of, make_rate, project, sizes
from holdfast.reliability.tables import OUTAGES

FIRST = datetime(2025, 3, 1, tzinfo=UTC)


def outages(
    rows: Sequence[tuple[str, str, float, str | None, str | None]], nodes: int | None
) -> pl.DataFrame:
    """A record of system, node, day, cause and role."""
    return pl.DataFrame(
        [
            {
                "system": system,
                "node": node,
                "at": FIRST + timedelta(days=day),
                "cause": cause,
                "role": role,
                "system_nodes": nodes,
            }
            for system, node, day, cause, role in rows
        ],
        schema=dict(OUTAGES),
    )


RECORD = [
    ("A", "0", 0.0, "Hardware", "front end"),
    ("A", "0", 10.0, "Software", "front end"),
    ("A", "0", 20.0, "Hardware", "front end"),
    ("A", "1", 50.0, None, "compute"),
    ("A", "2", 100.0, "Hardware", "compute"),
]


def test_exposure_is_all_nodes_times_the_length_of_the_record() -> None:
    """Also of nodes that never failed; every row is a failure, whatever its cause."""
    whole = rates_of_outages(outages(RECORD, 10)).whole
    assert (whole.nodes, whole.days, whole.rate.failures, whole.rate.node_days) == (10, 100.0, 5, 1000.0)
    assert [whole.rate.per_1000_node_days, whole.rate.low, whole.rate.high] == pytest.approx(
        [5.0, 1.970, 10.513], abs=1e-3
    )
    assert whole.hardware.per_1000_node_days == pytest.approx(3.0)
    assert whole.causes == {"Hardware": 0.6, "Software": 0.2, "none": 0.2}


def test_front_ends_are_told_apart() -> None:
    """With the days of the whole record, and without them the others' rate is lower."""
    whole = rates_of_outages(outages(RECORD, 10)).whole
    assert whole.front_end is not None
    assert whole.others is not None
    assert (whole.front_end.failures, whole.front_end.node_days) == (3, 100.0)
    assert (whole.others.failures, whole.others.node_days) == (2, 900.0)


def test_record_without_front_ends_has_no_rate_of_them() -> None:
    """Nor one without them."""
    whole = rates_of_outages(outages(RECORD[3:], 10)).whole
    assert (whole.front_end, whole.others) == (None, None)


def test_systems_are_added_up_by_their_own_exposure() -> None:
    """Node-days and failures each; systems in the order of their numbers."""
    both = pl.concat(
        [outages([("20", "a", 0.0, None, None), ("20", "a", 10.0, None, None)], 5), _system("3", days=100)]
    )
    found = rates_of_outages(both)
    assert list(found.systems) == ["3", "20"]
    assert found.systems["3"].rate.node_days == 400.0
    assert found.whole.rate.node_days == 450.0
    assert found.whole.rate.failures == 5
    assert "last minus first" in found.exposure


def _system(name: str, *, days: float) -> pl.DataFrame:
    return outages([(name, node, day, None, None) for node, day in (("a", 0), ("b", 1), ("b", days))], 4)


def test_nodes_that_are_not_told_are_those_that_failed() -> None:
    """More nodes that failed than the system has count as well."""
    assert rates_of_outages(outages(RECORD, None)).whole.nodes == 3
    assert rates_of_outages(outages(RECORD, 2)).whole.nodes == 3


def test_one_failure_has_no_exposure() -> None:
    """And so no rate: it may be anything."""
    whole = rates_of_outages(outages(RECORD[:1], 10)).whole
    assert whole.rate.per_1000_node_days is None
    assert whole.rate.high == float("inf")
    assert project(whole.rate, [8]) == []


def test_days_that_are_given_are_the_exposure() -> None:
    """Of every system; a single failure then has a rate, too."""
    found = rates_of_outages(outages(RECORD[:1], 10), days=365.0)
    assert found.whole.rate.node_days == 3650.0
    assert found.exposure == "nodes of the system x 365 days; every row is a failure"


def test_empty_record_is_no_error() -> None:
    """It says nothing."""
    found = rates_of_outages(outages([], None))
    assert (found.whole.nodes, found.whole.rate.failures, found.systems) == (0, 0, {})


def test_unlike_nodes_widen_the_interval() -> None:
    """One node of 50 has almost all failures: the quasi-Poisson interval holds the Poisson one."""
    rows = [("A", "7", float(day), None, None) for day in range(60)]
    whole = rates_of_outages(outages([*rows, ("A", "8", 60.0, None, None)], 50)).whole
    assert whole.scatter is not None
    assert whole.scatter.is_too_wide
    assert whole.rate.wide_low < whole.rate.low < whole.rate.high < whole.rate.wide_high


def test_projection_is_by_whole_nodes() -> None:
    """A job of 9 GPUs has two nodes; no failures mean no end of the interval."""
    one, two = project(make_rate(10, 10_000), [8, 9])
    assert (one.hours, two.hours) == (24_000.0, 12_000.0)
    assert one.low < one.hours < one.high
    assert project(make_rate(0, 10_000), [8])[0].high == float("inf")


def test_sizes_are_powers_of_two_of_nodes() -> None:
    """From one node to 131,072 GPUs."""
    assert sizes()[:3] == [8, 16, 32]
    assert sizes()[-1] == 131_072
    assert sizes(4)[:2] == [4, 8]
    assert [bucket_of(servers) for servers in (1, 2, 3, 8, 9, 1000)] == [1, 2, 4, 8, 16, 1024]
