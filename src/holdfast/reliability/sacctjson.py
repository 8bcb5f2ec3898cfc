"""The output of ``sacct --json`` into the table of attempts: the shapes of Slurm 21.08 to 24.05 and later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from holdfast.errors import InputError
from holdfast.observe.loose import as_dict, as_list
from holdfast.reliability.attempts import NAMES, convert, finish
from holdfast.reliability.opening import opened
from holdfast.reliability.tables import Reading
from holdfast.reliability.told import ROW, Tally

Cells = dict[str, str | None]
_DOCUMENT = msgspec.json.Decoder(dict[str, Any])


def read_sacct_json(path: Path) -> Reading:
    """Read a file that ``sacct --json`` wrote; its times are seconds since 1970."""
    with opened(path) as stream:
        return parse_sacct_json(stream.read(), str(path))


def parse_sacct_json(data: bytes, place: str) -> Reading:
    """Read what ``sacct --json`` wrote; raise InputError if there is no list of jobs in it."""
    try:
        document = _DOCUMENT.decode(data.decode(errors="replace"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{place}: cannot be read as JSON: {error}") from error
    jobs = document.get("jobs")
    if not isinstance(jobs, list):
        raise InputError(f"{place}: no list 'jobs' in it, expected the output of sacct --json")
    return read_rows([_job_cells(as_dict(job)) for job in jobs], Tally(place), is_slurm=True)


def read_rows(rows: list[Cells], tally: Tally, *, zone: str = "UTC", is_slurm: bool = False) -> Reading:
    """Return the reading of rows of text that are counted from 1."""
    tally.rows += len(rows)
    raw = pl.DataFrame(rows, schema=dict.fromkeys(NAMES, pl.String)).with_row_index(ROW, offset=1)
    return tally.reading(finish([convert(raw, zone, tally, is_slurm=is_slurm)], tally))


def _job_cells(job: dict[str, Any]) -> Cells:
    times, association = as_dict(job.get("time")), as_dict(job.get("association"))
    tres = as_dict(job.get("tres"))
    return {
        "job": _job_id(job),
        "name": _text(job.get("name")),
        "user": _text(job.get("user")) or _text(association.get("user")),
        "account": _text(job.get("account")) or _text(association.get("account")),
        "partition": _text(job.get("partition")),
        "qos": _text(job.get("qos")),
        "priority": _number(job.get("priority")),
        "state": _state(job.get("state")),
        "submit": _number(times.get("submission")),
        "eligible": _number(times.get("eligible")),
        "start": _number(times.get("start")),
        "end": _number(times.get("end")),
        "elapsed": _number(times.get("elapsed")),
        "nodes": _number(job.get("allocation_nodes")),
        "tres": _tres(tres.get("allocated")),
        "tres_asked": _tres(tres.get("requested")),
        "node_list": _text(job.get("nodes")),
        "exclude": _text(job.get("excluded_nodes")),
        "cluster": _text(job.get("cluster")) or _text(association.get("cluster")),
        "restarts": _number(job.get("restart_cnt")),
    }


def _job_id(job: dict[str, Any]) -> str | None:
    """Return the id as sacct -P writes it: a task of an array is ``123_4``."""
    array = as_dict(job.get("array"))
    parent, task = _number(array.get("job_id")), _number(array.get("task_id"))
    # Tasks that wait are told together: "5-9%2". Task 0 of job 0 is how old versions say: no array.
    waiting = _text(array.get("task"))
    if parent not in (None, "0"):
        if task is not None:
            return f"{parent}_{task}"
        if waiting:
            return f"{parent}_[{waiting}]"
    return _number(job.get("job_id"))


def _state(value: Any) -> str | None:
    """Return the first word: what follows are flags."""
    current = as_dict(value).get("current", value)
    words = as_list(current)
    return _text(words[0] if words else current)


def _tres(value: Any) -> str | None:
    """Return a list of resources as sacct -P writes it."""
    if isinstance(value, str):
        return value
    parts = []
    for item in map(as_dict, as_list(value)):
        name = f"{item.get('type')}/{item['name']}" if item.get("name") else str(item.get("type"))
        parts.append(f"{name}={_number(item.get('count'))}")
    return ",".join(parts) or None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> str | None:
    """Return a number as text; since 22.05 it may be ``{"set": true, "infinite": false, "number": 7}``."""
    if isinstance(value, dict):
        is_told = value.get("set") is True and value.get("infinite") is not True
        return _number(value.get("number")) if is_told else None
    if isinstance(value, bool) or value is None:
        return None
    return str(value) if isinstance(value, int | float | str) else f"{type(value).__name__}"
