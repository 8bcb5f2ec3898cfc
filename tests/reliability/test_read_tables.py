"""Failure records, tables of jobs by a map or a known header, Philly's JSON."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from holdfast.errors import InputError
from holdfast.reliability.lanl import parse_lanl
from holdfast.reliability.mapped import parse_mapped, parse_philly, read_mapped
from holdfast.reliability.tables import ATTEMPTS, OUTAGES, Reading

LANL = (
    "System,machine type,nodes,nodenum,nodenumz,purpose,Prob Started,Prob Fixed,Down Time,"
    "Facilities,Hardware,Human Error,Network,Undetermined,Software,Same Event\n"
)


def at(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def mapped(text: str, columns: dict[str, str] | None = None, **options: Any) -> Reading:
    """Read a table of jobs."""
    reading = parse_mapped(io.BytesIO(text.encode()), "jobs.csv", columns, **options)
    assert reading.table.schema == pl.Schema(ATTEMPTS)
    assert reading.table.height + reading.broken + reading.left_out == reading.rows
    return reading


def test_failure_records_are_read() -> None:
    """The filled column is the cause; node 0 is the front end; what is broken is told."""
    reading = parse_lanl(
        io.BytesIO(
            (
                LANL + "20,cluster,512,1,0,compute,6/1/2003 0:05,6/1/2003 2:11,126,,Memory Dimm,,,,,No\n"
                "20,cluster,512,8,7,compute,12/31/2003 23:59,1/1/2004 0:59,60,,,,,,OS,No\n"
                "20,cluster,512,8,7,graphics.fe,1/1/2004 1:00,,,,,,,,,No\n"
                "20,cluster,512,8,7,compute,13/1/2004 1:00,1/1/2004 0:59,60,,,,,,OS,No\n"
                "20,cluster,512,8,7,compute,1/2/2004 1:00,1/1/2004 0:59,60,,,,,,OS,No\n"
                "20,cluster,512,8,,compute,1/2/2004 1:00,1/3/2004 0:59,60,,,,,,OS,No\n"
                "20,cluster,512,8,7,compute,1/2/2004 1:00,1/3/2004 0:59,-6,,,,,,OS,No\n"
                "20,cluster,512\n"
            ).encode()
        ),
        "failures.csv",
    )
    assert reading.table.schema == pl.Schema(OUTAGES)
    first = (at("2003-06-01T00:05"), at("2003-06-01T02:11"))
    second = (at("2003-12-31T23:59"), at("2004-01-01T00:59"))
    assert reading.table.rows() == [
        ("20", "0", *first, 126.0, "Hardware", "Memory Dimm", "front end", 512),
        ("20", "7", *second, 60.0, "Software", "OS", "compute", 512),
        ("20", "7", at("2004-01-01T01:00"), None, None, None, None, "front end", 512),
    ]
    assert (reading.rows, reading.broken) == (8, 5)
    assert sorted(one.why.split(",")[0] for one in reading.told) == [
        "Prob Fixed '1/1/2004 0:59' is before Prob Started '1/2/2004 1:00'",
        "Prob Started is '13/1/2004 1:00'",
        "down_min is '-6'",
        "has 3 cells",
        "names no node",
    ]


def test_years_of_two_digits_are_of_our_time() -> None:
    """The year 3 had no computers."""
    text = "System,nodenumz,Prob Started (mm/dd/yy hh:mm),Hardware\n2,5,6/1/03 0:05,CPU\n"
    assert parse_lanl(io.BytesIO(text.encode()), "failures.csv").table["at"].to_list() == [
        at("2003-06-01T00:05")
    ]


def test_other_tables_are_no_failure_records() -> None:
    """The message says which columns make one."""
    with pytest.raises(InputError, match="Prob Started"):
        parse_lanl(io.BytesIO(b"a,b\n1,2\n"), "failures.csv")


def test_a_map_names_the_columns() -> None:
    """Names of columns are compared without regard to capitals; ids may be any text."""
    text = "JobId,Status,Began,GPUs\njob-a,Succeeded,2024-01-01 00:00:00,8.0\n,Failed,,\njob-b,Pass,,-1\n"
    reading = mapped(text, {"job": "jobid", "state": "STATUS", "start": "Began", "gpus": "GPUs"})
    assert reading.table.select("job", "state", "start", "gpus").rows() == [
        ("job-a", "COMPLETED", at("2024-01-01"), 8)
    ]
    assert [one.why for one in reading.told] == [
        "names no job",
        "gpus is '-1', expected a whole number (sacct: --noconvert)",
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"job": "Nope"}, "no column 'Nope', it has a, b"),
        ({"jobs": "a"}, "names 'jobs', expected one of job, "),
        ({"state": "a"}, "which is the job"),
        (None, "expected a map of columns"),
    ],
)
def test_a_map_that_does_not_fit_is_refused(columns: dict[str, str] | None, message: str) -> None:
    """One line says which part of it."""
    with pytest.raises(InputError, match=message):
        mapped("a,b\n1,2\n", columns)


def test_helios_and_acme_are_known_by_their_header() -> None:
    """Their durations stand in for ends that are missing."""
    helios = (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "77,u1,vcA,8,64,1,NODE_FAIL,2020-04-01 00:00:00,2020-04-01 00:01:00,,3600.0,60\n"
    )
    assert mapped(helios, timezone="Asia/Shanghai").table.select(
        "job", "partition", "state", "start", "end", "nodes", "gpus"
    ).rows() == [("77", "vcA", "NODE_FAIL", at("2020-03-31T16:01"), at("2020-03-31T17:01"), 1, 8)]
    acme = (
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
        "x1,u1,2,16,64,LLM,CANCELLED,2023-05-01 00:00:00+08:00,2023-05-01 00:01:00+08:00,"
        "2023-05-01 01:01:00+08:00,3600,60,1\n"
    )
    assert mapped(acme).table.select("job", "state", "end", "gpus").rows() == [
        ("x1", "CANCELLED", at("2023-04-30T17:01"), 16)
    ]


def test_parquet_and_json_lines_are_read_as_csv_is(tmp_path: Path) -> None:
    """Times and numbers come as they are, with or without a zone."""
    table = pl.DataFrame(
        {
            "job": [1, 2],
            "state": ["FAILED", None],
            "start": [at("2024-01-01"), None],
            "end": [datetime(2024, 1, 2, 3, 4, 5, 600000), None],
            "gpus": [8.0, None],
            "tags": [["a"], []],
        }
    )
    file = tmp_path / "jobs.parquet"
    table.write_parquet(file)
    lines = tmp_path / "jobs.jsonl"
    lines.write_text(
        '{"job": 1, "state": "FAILED", "start": "2024-01-01T00:00:00Z", "end": "2024-01-02T03:04:05.600000",'
        ' "gpus": 8.0}\n{"job": 2}\n'
    )
    expected = [
        ("1", "FAILED", at("2024-01-01"), at("2024-01-02T03:04:05.6"), 8),
        ("2", None, None, None, None),
    ]
    for path in (file, lines):
        assert read_mapped(path).table.select("job", "state", "start", "end", "gpus").rows() == expected


@pytest.mark.parametrize("data", [b"PAR1", b"PAR1" + b"\0" * 50 + b"PAR1", b"PAR1garbagePAR1"])
def test_a_broken_parquet_file_is_refused(data: bytes) -> None:
    """It has no rows that could be told."""
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        parse_mapped(io.BytesIO(data), "jobs.parquet")


def test_philly_has_one_row_per_attempt() -> None:
    """The job's state is that of its last attempt; those before it failed."""
    detail = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]
    jobs = [
        {
            "status": "Pass",
            "vc": "v",
            "jobid": "application_1",
            "submitted_time": "2017-10-09 07:00:00",
            "user": "u",
            "attempts": [
                {"start_time": "2017-10-09 07:01:00", "end_time": "2017-10-09 07:02:00", "detail": detail},
                {"start_time": "2017-10-09 07:03:00", "end_time": "None", "detail": detail[:1]},
            ],
        },
        {"status": "Killed", "jobid": "application_2", "attempts": []},
        7,
    ]
    reading = parse_philly(json.dumps(jobs).encode(), "jobs.json")
    assert reading.table.select("job", "attempt", "state", "nodes", "gpus", "node_list").rows() == [
        ("application_1", 1, "FAILED", 2, 3, "m1,m2"),
        ("application_1", 2, "COMPLETED", 1, 2, "m1"),
        ("application_2", 1, "CANCELLED", None, None, None),
    ]
    assert (reading.rows, reading.broken) == (4, 1)
    with pytest.raises(InputError, match="jobid"):
        parse_philly(b"[1]", "jobs.json")
