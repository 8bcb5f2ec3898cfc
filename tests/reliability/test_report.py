"""build: one value with all that the books of a cluster say, and the same numbers as its parts."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import msgspec
import polars as pl
import pytest

from holdfast.reliability.checkaudit import audit
from holdfast.reliability.report import Books, Report, build
from holdfast.reliability.tables import ATTEMPTS, EVENTS, Broken, Reading
from holdfast.simulate.cluster import simulate_cluster
from holdfast.simulate.cluster_plan import ClusterPlan

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def report() -> Report:
    """That of a week of a small cluster."""
    record = simulate_cluster(ClusterPlan(nodes=64, days=7.0), random.Random(3))
    broken = Broken(place="sacct.txt, row 7", why="no state")
    readings = [
        ("sacct.txt", "attempts", Reading(record.attempts, record.attempts.height + 1, 1, (broken,))),
        ("events.txt", "events", Reading(record.events, record.events.height)),
    ]
    return build(Books(readings), over_gpus=8)


def test_shares_are_of_a_whole(report: Report) -> None:
    """States and sizes each make up all attempts and all GPU time."""
    assert report.jobs is not None
    for rows in (report.jobs.statuses, report.jobs.sizes):
        assert sum(row["share"] for row in rows) == pytest.approx(1)
        assert sum(row["gpu_share"] for row in rows) == pytest.approx(1)
        assert sum(row["gpu_hours"] for row in rows) == pytest.approx(report.jobs.gpu_hours)


def test_every_failure_is_counted_once_everywhere(report: Report) -> None:
    """The rate over time has the failures of the rate, and the loss of first order has all of them."""
    jobs = report.jobs
    assert jobs is not None
    assert jobs.over_time is not None
    assert sum(week.failures for week in jobs.over_time.stretches) == jobs.rates.rate.failures
    assert sum(week.node_days for week in jobs.over_time.stretches) == pytest.approx(
        jobs.rates.rate.node_days, rel=1e-6
    )
    hardware = sum(row["hardware"] for row in jobs.attribution.causes)
    assert hardware == sum(row["failures"] for row in jobs.lost.sizes)


def test_what_could_not_be_read_is_part_of_it(report: Report) -> None:
    """A broken row is shown with its place."""
    assert report.sources[0].broken == 1
    assert report.sources[0].told[0].place == "sacct.txt, row 7"


def test_it_is_json(report: Report) -> None:
    """With no value that JSON has no word for."""
    text = msgspec.json.encode(report)
    assert b"NaN" not in text
    assert msgspec.json.decode(text)["jobs"]["attempts"] == report.jobs.attempts  # type: ignore[union-attr]


def test_empty_books_have_nothing_to_say() -> None:
    """No jobs and no outages, and no error."""
    assert build(Books([])) == Report(sources=[], jobs=None, outages=None)


def _attempt(job: str, node: str, *, state: str = "COMPLETED") -> dict[str, object]:
    return {
        "job": job, "attempt": 1, "state": state, "submit": NOON, "start": NOON,
        "end": NOON + timedelta(hours=1), "nodes": 1, "gpus": 8, "node_list": node,
    }  # fmt: skip


def _event(node: str, minutes: float, severity: str = "critical", name: str = "disk") -> dict[str, object]:
    return {
        "node": node, "at": NOON + timedelta(minutes=minutes), "kind": "check", "name": name,
        "severity": severity,
    }  # fmt: skip


def test_a_check_that_fails_under_a_job_which_ends_well_is_held_against_the_check() -> None:
    """From the start of the job until five minutes after its end, on its node, and if it failed at all."""
    attempts = pl.DataFrame(
        [_attempt(str(number), f"n{number}") for number in range(6)] + [_attempt("7", "n7", state="FAILED")],
        schema=ATTEMPTS,
    )
    events = pl.DataFrame(
        [
            _event("n0", 30),
            _event("n1", 64, "warning", "clock"),
            _event("n1", 64, "warning", "disk"),
            _event("n2", 66),
            _event("n3", -1),
            _event("n4", 30, "ok"),
            _event("n7", 30),
        ],
        schema=EVENTS,
    )
    found = audit(attempts, events)
    assert (found.completed, found.touched) == (6, 2)
    assert found.share == pytest.approx(1 / 3)
    assert found.low < 1 / 3 < found.high
    assert found.checks.select("name", "severity", "touched").rows() == [
        ("clock", "warning", 1),
        ("disk", "critical", 1),
        ("disk", "warning", 1),
    ]


def test_a_second_failure_of_the_same_node_is_not_hidden_by_one_before() -> None:
    """An event before the start is another job's."""
    attempts = pl.DataFrame([_attempt("1", "n1")], schema=ATTEMPTS)
    events = pl.DataFrame([_event("n1", -5), _event("n1", 10), _event("n1", 20)], schema=EVENTS)
    assert audit(attempts, events).touched == 1
