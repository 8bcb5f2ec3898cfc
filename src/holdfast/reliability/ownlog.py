"""Holdfast's own event logs into the table of attempts: one row for each start of a run's workers.

Start and end are told by one clock, that of the lowest node. A rank is taken for one GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.errors import InputError
from holdfast.observe.eventlog import EventLogContent, read_events, read_run
from holdfast.reliability.sacctjson import Cells, read_rows
from holdfast.reliability.tables import Reading
from holdfast.reliability.told import Tally
from holdfast.values import AttemptEnded, AttemptStarted, LauncherDied, Record, RunEnded, RunStarted

_STATES = {"succeeded": "COMPLETED", "failed": "FAILED", "signal": "CANCELLED", "membership": "REQUEUED"}
"""Nodes that come or go make a run start again, as a requeue does."""

_BROKEN = re.compile(r"(.*?):([0-9]+): (.*)", re.DOTALL)
"""How the reader of logs tells a broken line."""


class _Run(NamedTuple):
    job: str
    content: EventLogContent


def read_own_logs(path: Path) -> Reading:
    """Read a run directory, a folder of them, or one event log."""
    tally = Tally(path)
    rows: list[Cells] = []
    for run in _runs(path):
        for line in run.content.broken:
            match = _BROKEN.fullmatch(line)
            assert match is not None
            tally.rows += 1
            tally.tell(int(match[2]), f"{match[1]} of {run.job}: {match[3]}")
        tally.rows += run.content.cut
        for _ in range(run.content.cut):
            tally.tell(len(run.content.records) + 1, f"{run.job}: the last line is cut")
        rows += _attempts(run)
    return read_rows(rows, tally)


def _runs(path: Path) -> Iterator[_Run]:
    if path.is_file():
        yield _Run(path.absolute().parent.name, read_events(path))
        return
    if any(path.glob("events*.jsonl")):
        yield _Run(path.absolute().name, read_run(path))
        return
    folders = sorted({file.parent for file in path.glob("*/events*.jsonl")})
    if not folders:
        raise InputError(f"{path}: no events.jsonl in it or in its folders, expected run directories")
    for folder in folders:
        yield _Run(folder.name, read_run(folder))


def _attempts(run: _Run) -> Iterator[Cells]:
    by_attempt: dict[int, list[Record]] = {}
    for record in run.content.records:
        by_attempt.setdefault(record.stamp.attempt, []).append(record)
    started = next((each for each in run.content.records if isinstance(each.event, RunStarted)), None)
    for number, records in sorted(by_attempt.items()):
        starts = [each for each in records if isinstance(each.event, AttemptStarted)]
        if starts:
            first = min(starts, key=lambda each: each.stamp.node)
            mine = [each for each in records if each.stamp.node == first.stamp.node]
            hosts = {each.stamp.node: each.stamp.host for each in starts}
            yield (
                _row(run.job, number, started, first)
                | _end(mine)
                | {"node_list": ",".join(host for _, host in sorted(hosts.items()))}
            )


def _row(job: str, number: int, started: Record | None, first: Record) -> Cells:
    assert isinstance(first.event, AttemptStarted)
    is_told = started is not None and isinstance(started.event, RunStarted)
    return {
        "job": job,
        "name": started.event.run_id if started and isinstance(started.event, RunStarted) else None,
        "submit": started.stamp.at if started and is_told else None,
        "start": first.stamp.at,
        "nodes": str(first.event.nodes),
        "gpus": str(first.event.world_size),
        "restarts": str(number),
    }


def _end(records: list[Record]) -> Cells:
    """Return how an attempt ended by what was written last about it; nothing: it runs."""
    for record in reversed(records):
        match record.event:
            case AttemptEnded(reason=reason):
                return {"state": _STATES[reason], "end": record.stamp.at}
            case LauncherDied():
                return {"state": "FAILED", "end": record.stamp.at}
            case RunEnded(reason=reason):
                later = _end(records[: records.index(record)])
                return later if later.get("end") else {"state": _ended(reason), "end": record.stamp.at}
    return {"state": "RUNNING"}


def _ended(reason: str) -> str:
    if reason.startswith("stopped"):
        return "CANCELLED"
    return "COMPLETED" if reason == "succeeded" else "FAILED"


def is_event_log(line: bytes) -> bool:
    """Say whether a line is one of an event log."""
    try:
        found = msgspec.json.decode(line.decode(errors="replace"), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return False
    return "schema" in found and "event_id" in found
