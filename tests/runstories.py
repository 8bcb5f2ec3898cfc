"""Logs of made-up runs: events at seconds after a beginning, told by nodes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from helpers import make_death
from holdfast.findings import ChangePoint, Suspect
from holdfast.telemetry import Summary
from holdfast.values import (
    AnyEvent,
    Applied,
    AttemptEnded,
    AttemptStarted,
    Decided,
    IncidentClosed,
    JobRelieved,
    JobSlowed,
    Record,
    Regrouped,
    RunEnded,
    RunStarted,
    Stamp,
    StepSeen,
    SuspectsNamed,
    WorkerDied,
)

BEGINNING = datetime(2026, 11, 15, 19, 40, tzinfo=UTC)
START = RunStarted(run_id="x", argv=["train.py"], pid=7)
_ids = count()


def at(second: float) -> str:
    """Return the time so many seconds after the beginning."""
    return (BEGINNING + timedelta(seconds=second)).isoformat()


def tell(second: float, event: AnyEvent, *, node: int = 0, attempt: int = 0) -> Record:
    """Return a record, with an id that says when it was."""
    name = f"{node}-{second:g}-{next(_ids)}"
    host = f"host{node}"
    stamp = Stamp(schema=1, event_id=name, at=at(second), host=host, node=node, attempt=attempt)
    return Record(stamp=stamp, event=event)


def started(*ranks: int, world_size: int = 4, nodes: int = 1) -> AttemptStarted:
    """Return the start of a node's workers."""
    return AttemptStarted(
        world_size=world_size, nodes=nodes, ranks=list(ranks), pids=[100 + r for r in ranks]
    )


def died(rank: int) -> WorkerDied:
    """Return a death by a signal."""
    return WorkerDied(death=make_death(rank=rank, exit_code=137, signal="SIGKILL"))


def regrouped(generation: int, *members: int, **more: Any) -> Regrouped:
    """Return who goes on."""
    usual: dict[str, Any] = {"version": 10 * generation, "dead": []}
    return Regrouped(generation=generation, members=list(members), **(usual | more))


def change(step: int, before_s: float, after_s: float, *, is_slow: bool) -> ChangePoint:
    """Return a change that is known ten steps later."""
    return ChangePoint(
        step=step,
        detected_step=step + 10,
        before_s=before_s,
        after_s=after_s,
        direction="slow" if after_s > before_s else "relief",
        is_slow=is_slow,
        confidence=0.99,
    )


def slowed(step: int, before_s: float = 1.0, after_s: float = 1.5) -> JobSlowed:
    """Return that steps take longer."""
    return JobSlowed(change=change(step, before_s, after_s, is_slow=True))


def relieved(step: int, before_s: float = 1.5, after_s: float = 1.0, *, is_slow: bool = False) -> JobRelieved:
    """Return that steps take less long."""
    return JobRelieved(change=change(step, before_s, after_s, is_slow=is_slow))


def suspect(rank: int) -> Suspect:
    """Return a rank that computes slowly."""
    return Suspect(ranks=[rank], hosts=["a"], cause="compute", slowdown=1.5, confidence=0.9, evidence=["x"])


def decided(number: int, level: str, *, lost_s: float = 5.0, is_dry: bool = False) -> Decided:
    """Return a decision that should shorten steps of a second by 0.4 s."""
    return Decided(
        number=number,
        level=level,
        since_step=50,
        speeds={} if level == "undo" else {1: 0.5},
        gain=0.4,
        healthy_s=1.0,
        saved_s=2.0,
        lost_s=lost_s,
        price_s=0.3,
        outlook_s=60.0,
        is_dry=is_dry,
    )


def row(second: float, step: int, *, node: int = 0, attempt: int = 0) -> Summary:
    """Return a row of the summaries in which rank 0 reached a step."""
    return Summary(at=at(second), node=node, attempt=attempt, steps={"0": step}, duration_s={"0": 0.5})


def write_run(folder: Path, records: Iterable[Record], rows: Iterable[Summary] = ()) -> Path:
    """Write a run directory: the event log of each node, the summaries, and who and what it was."""
    folder.mkdir(parents=True, exist_ok=True)
    for record in records:
        node = record.stamp.node
        line = {
            **msgspec.to_builtins(record.stamp),
            **msgspec.to_builtins(record.event),
            "type": record.event.type,
        }
        with (folder / ("events.jsonl" if node == 0 else f"events.node{node}.jsonl")).open("ab") as log:
            log.write(msgspec.json.encode(line) + b"\n")
    with (folder / "summaries.jsonl").open("ab") as log:
        for each in rows:
            log.write(msgspec.json.encode(each) + b"\n")
    about = {
        "schema": 1,
        "run_id": "x",
        "argv": ["train.py"],
        "started_at": at(0),
        "host": "host0",
        "launcher_pid": 7,
        "settings": {"act": {"value": "S2", "origin": "flag"}, "runs": {"value": "r", "origin": "default"}},
        "launch": {"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 4, "command": ["train.py", "--lr", "1"]},
        "versions": {"holdfast": "0.1.0", "torch": "2.13.0"},
    }
    (folder / "run.json").write_bytes(msgspec.json.encode(about))
    return folder


def eventful() -> tuple[list[Record], list[Summary]]:
    """Return a run that was slow, got around it, lost a rank and went on without it."""
    records = [
        tell(0, START),
        tell(1, started(0, 1, 2, 3)),
        tell(9, regrouped(0, 0, 1, 2, 3)),
        *(tell(10, StepSeen(rank=rank, step=0)) for rank in range(4)),
        tell(80, slowed(50)),
        tell(80.1, SuspectsNamed(since_step=50, suspects=[suspect(1)])),
        tell(81, decided(1, "S2")),
        tell(82, Applied(number=1, level="S2", version=60, pause_s=0.2)),
        tell(122, decided(2, "undo", lost_s=12.0)),
        tell(123, Applied(number=2, level="undo", version=100, pause_s=0.3)),
        tell(123, IncidentClosed(since_step=50, lasted_s=43.0, lost_s=13.0, paid_s=0.5)),
        tell(150, died(3)),
        tell(152, regrouped(1, 0, 1, 2, dead=[3])),
        tell(200, AttemptEnded(reason="succeeded")),
        tell(200, RunEnded(exit_code=0, reason="succeeded")),
    ]
    return records, [row(second, second - 10) for second in range(11, 200)]
