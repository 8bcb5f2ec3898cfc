"""Any table of jobs into the table of attempts: by a map of its columns, or because its header is known.

Known are the traces Helios and Acme (Seren and Kalos), Philly's JSON, and tables that use our own names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from holdfast.errors import InputError
from holdfast.observe.loose import as_dict, as_list
from holdfast.reliability.attempts import NAMES, convert, finish
from holdfast.reliability.cells import NOTHING, check_zone
from holdfast.reliability.opening import opened
from holdfast.reliability.rawtables import open_table
from holdfast.reliability.sacctjson import Cells, read_rows
from holdfast.reliability.tables import Reading
from holdfast.reliability.told import Tally

TRACE = {
    "job": "job_id",
    "user": "user",
    "partition": "vc",
    "state": "state",
    "submit": "submit_time",
    "start": "start_time",
    "end": "end_time",
    "elapsed": "duration",
    "nodes": "node_num",
    "gpus": "gpu_num",
}
"""Columns of Helios and Acme; Acme has no virtual clusters (vc)."""
_TRACE_NEEDED = ("job_id", "gpu_num", "state", "submit_time")
_LIST = msgspec.json.Decoder(list[Any])


def read_mapped(path: Path, columns: Mapping[str, str] | None = None, *, timezone: str = "UTC") -> Reading:
    """Read a CSV, Parquet or JSON lines file; ``columns`` says what it calls ours: ``{"job": "JobId"}``."""
    with opened(path) as stream:
        return parse_mapped(stream, str(path), columns, timezone=timezone)


def parse_mapped(
    stream: BinaryIO, place: str, columns: Mapping[str, str] | None = None, *, timezone: str = "UTC"
) -> Reading:
    """Read a table of jobs; raise InputError if a column of the map is not there."""
    zone = check_zone(timezone)
    table = open_table(stream, place)
    chosen = _check(columns, table.names, place) if columns else find_columns(table.names)
    if not chosen:
        known = ", ".join(table.names[:12])
        raise InputError(
            f"{place}, row 1: columns {known}; expected a map of columns that says which is the job"
        )
    tally = Tally(place)
    pieces = [convert(frame(tally), zone, tally) for frame in table.frames(chosen)]
    return tally.reading(finish(pieces, tally))


def find_columns(names: Sequence[str]) -> dict[str, str]:
    """Return the map of a table whose header is known; empty: it is not."""
    if all(name in names for name in _TRACE_NEEDED):
        return {ours: theirs for ours, theirs in TRACE.items() if theirs in names}
    if "job" in names and ("state" in names or "start" in names):
        return {name: name for name in NAMES if name in names}
    return {}


def _check(columns: Mapping[str, str], names: Sequence[str], place: str) -> dict[str, str]:
    chosen = {ours: theirs.strip().lower() for ours, theirs in columns.items()}
    for ours, theirs in chosen.items():
        if ours not in NAMES:
            raise InputError(f"map of columns names {ours!r}, expected one of {', '.join(NAMES)}")
        if theirs not in names:
            raise InputError(f"{place}, row 1: no column {columns[ours]!r}, it has {', '.join(names[:20])}")
    if "job" not in chosen:
        raise InputError("map of columns does not say which is the job")
    return chosen


# --- Philly -----------------------------------------------------------------------------------


def read_philly(path: Path, *, timezone: str = "UTC") -> Reading:
    """Read the job log of the Philly trace: a JSON list of jobs with their attempts."""
    with opened(path) as stream:
        return parse_philly(stream.read(), str(path), timezone=timezone)


def parse_philly(data: bytes, place: str, *, timezone: str = "UTC") -> Reading:
    """Read Philly's JSON; a job's own state is that of its last attempt, those before it failed."""
    zone = check_zone(timezone)
    try:
        jobs = _LIST.decode(data.decode(errors="replace"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{place}: cannot be read as a JSON list: {error}") from error
    if not any("jobid" in as_dict(job) for job in jobs):
        raise InputError(f"{place}: no object with 'jobid' in it, expected a list of jobs")
    rows = [row for job in jobs for row in _job_rows(as_dict(job))]
    return read_rows(rows, Tally(place), zone=zone)


def _job_rows(job: dict[str, Any]) -> Iterator[Cells]:
    attempts = [as_dict(attempt) for attempt in as_list(job.get("attempts"))] or [{}]
    shared = {
        "job": _text(job.get("jobid")),
        "user": _text(job.get("user")),
        "partition": _text(job.get("vc")),
        "submit": _text(job.get("submitted_time")),
    }
    for place, attempt in enumerate(attempts, start=1):
        nodes = [as_dict(node) for node in as_list(attempt.get("detail"))]
        state = _text(job.get("status")) if place == len(attempts) else "FAILED"
        yield shared | {
            "state": state,
            "start": _text(attempt.get("start_time")),
            "end": _text(attempt.get("end_time")),
            "nodes": str(len(nodes)) if nodes else None,
            "gpus": str(sum(len(as_list(node.get("gpus"))) for node in nodes)) if nodes else None,
            "node_list": ",".join(str(node.get("ip")) for node in nodes) or None,
        }


def _text(value: Any) -> str | None:
    return None if value is None or str(value) in NOTHING else str(value)
