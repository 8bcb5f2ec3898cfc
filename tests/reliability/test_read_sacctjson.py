"""What sacct --json writes, in the shapes of several versions of Slurm."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from holdfast.errors import InputError
from holdfast.reliability.sacctjson import parse_sacct_json
from holdfast.reliability.tables import ATTEMPTS, Reading

START = 1_704_067_200  # 2024-01-01
TIME = {"elapsed": 60, "eligible": START - 5, "end": START + 60, "start": START, "submission": START - 9}
OLD = {
    "account": "lab",
    "allocation_nodes": 2,
    "array": {"job_id": 0, "limits": {"max": {"running": {"tasks": 0}}}, "task": None, "task_id": None},
    "association": {"account": "lab", "cluster": "c", "partition": None, "user": "ann"},
    "cluster": "c",
    "job_id": 7,
    "name": "train",
    "nodes": "gpu[1-2]",
    "partition": "gpu",
    "priority": 77,
    "qos": "high",
    "state": {"current": "NODE_FAIL", "reason": "None"},
    "time": {
        "elapsed": 60,
        "eligible": START - 5,
        "end": START + 60,
        "start": START,
        "submission": START - 9,
    },
    "tres": {
        "allocated": [
            {"type": "cpu", "name": None, "id": 1, "count": 8},
            {"type": "gres", "name": "gpu", "id": 1001, "count": 16},
        ],
        "requested": [],
    },
    "user": "ann",
}
NEW = OLD | {
    "array": {"job_id": 7, "task_id": {"set": True, "infinite": False, "number": 4}, "task": ""},
    "job_id": 9,
    "priority": {"set": True, "infinite": False, "number": 77},
    "state": {"current": ["NODE_FAIL"], "reason": "None"},
    "restart_cnt": 3,
}


def parse(*jobs: Any) -> Reading:
    """Read a document with some jobs."""
    reading = parse_sacct_json(json.dumps({"meta": {}, "jobs": jobs, "errors": []}).encode(), "jobs.json")
    assert reading.table.schema == pl.Schema(ATTEMPTS)
    assert reading.table.height + reading.broken + reading.left_out == reading.rows == len(jobs)
    return reading


def at(second: int) -> datetime:
    """A time in UTC."""
    return datetime.fromtimestamp(second, UTC)


@pytest.mark.parametrize(("job", "name", "attempt"), [(OLD, "7", 1), (NEW, "7_4", 4)])
def test_both_shapes_give_the_same_row(job: dict[str, Any], name: str, attempt: int) -> None:
    """States as word or list, numbers plain or with a flag; a restart count says which attempt it is."""
    row = parse(job).table.row(0, named=True)
    assert row == {
        "job": name,
        "attempt": attempt,
        "name": "train",
        "user": "ann",
        "account": "lab",
        "partition": "gpu",
        "qos": "high",
        "priority": 77,
        "state": "NODE_FAIL",
        "submit": at(START - 9),
        "eligible": at(START - 5),
        "start": at(START),
        "end": at(START + 60),
        "nodes": 2,
        "gpus": 16,
        "node_list": "gpu[1-2]",
        "exclude": None,
        "preemptor": None,
    }


def test_jobs_that_run_or_wait_have_no_end_or_start() -> None:
    """Zero and numbers that are not set are no times."""
    unset = {"set": False, "infinite": True, "number": 0}
    waits = NEW | {"job_id": 8, "array": {}, "state": {"current": ["PENDING"]}, "nodes": "None assigned"}
    runs = OLD | {"state": {"current": "RUNNING"}, "time": TIME | {"end": 0}}
    table = parse(waits | {"time": {"start": unset, "end": 0, "submission": START}}, runs).table
    assert table.select("start", "end", "node_list").rows() == [
        (None, None, None),
        (at(START), None, "gpu[1-2]"),
    ]


def test_tasks_that_wait_are_one_row() -> None:
    """They are named as sacct -P names them."""
    job = OLD | {"array": {"job_id": 12, "task_id": {"set": False, "number": 0}, "task": "5-9%2"}}
    assert parse(job).table["job"].to_list() == ["12_[5-9%2]"]


def test_jobs_of_other_shapes_are_told_and_the_rest_is_read() -> None:
    """Whatever stands in place of a job."""
    odd = OLD | {"time": {"start": "soon"}}
    reading = parse(OLD, 5, None, {}, {"job_id": "x"}, odd, OLD | {"state": [], "job_id": 8, "tres": 3})
    assert reading.table["job"].to_list() == ["7", "8"]
    assert [one.place for one in reading.told] == [f"jobs.json, row {number}" for number in (2, 3, 4, 5, 6)]
    assert reading.told[4].why == "start is 'soon', expected a time that the time zone has"


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"{", "cannot be read as JSON"), (b"[]", "cannot be read as JSON"), (b'{"a": 1}', "no list 'jobs'")],
)
def test_other_documents_are_refused(data: bytes, message: str) -> None:
    """One line says what was expected."""
    with pytest.raises(InputError, match=message):
        parse_sacct_json(data, "jobs.json")


def test_no_jobs_are_an_empty_table() -> None:
    """A quiet day is no error."""
    assert parse().table.height == 0
