"""From a fault to its cause: how long a run under ``holdfast inject --profile`` takes, and what it costs."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from common import progress, show
from holdfast.errors import InputError
from holdfast.findings import Cause
from holdfast.observe.eventlog import read_run
from holdfast.values import FaultInjected, JobSlowed, Profiled, Record, SuspectsNamed
from profiled.running import HERE, HOLDFAST

RANKS = 4
TOO_LONG_S = 150.0
JOB = ("-m", "holdfast.lab.jobs.ddp", "--device", "emulated", "--op-ms", "15", "--steps", "100000")
FAULTS: tuple[tuple[str, Cause, float, float], ...] = (
    ("slow_device", "compute", 1.5, 3.0),
    ("data_stall", "data_loading", 0.05, 0.12),
    ("gc_storm", "garbage_collection", 0.05, 0.12),
    ("copy_storm", "host_memory", 0.05, 0.12),
)


@dataclass(frozen=True)
class Response:
    """What came after a fault, in seconds since it; None: it did not come."""

    slowed_s: float | None
    named_s: float | None
    profiled_s: float | None
    is_right: bool
    blocked_s: float


def report(seeds: int, *, as_json: bool) -> None:
    """Run each fault for some seeds and print the times."""
    rows: list[dict[str, Any]] = []
    with progress() as bar:
        task = bar.add_task("faults", total=seeds * len(FAULTS))
        for kind, cause, least, most in FAULTS:
            found = []
            for seed in range(1, seeds + 1):
                chance = random.Random(f"{seed}/{kind}")
                rank = chance.randrange(RANKS)
                fault = f"{kind} rank={rank} at=60 severity={chance.uniform(least, most):.3f}"
                found.append(respond(fault, rank, cause))
                bar.advance(task)
            rows.append(_row(kind, found))
    notes = [
        "seconds from the fault, the longest of all runs: told that it is slow, somebody named, profiled",
        "right: the profile names the rank and the cause; blocked: training stood still to be profiled",
        f"{RANKS} ranks, CPU with gloo, emulated accelerators",
    ]
    show("From a fault to its cause", rows, notes, as_json=as_json)


def _row(kind: str, found: Sequence[Response]) -> dict[str, Any]:
    def longest(values: Sequence[float | None]) -> float | str:
        known = [value for value in values if value is not None]
        return max(known) if len(known) == len(values) else f"{len(values) - len(known)} never"

    return {
        "fault": kind,
        "runs": len(found),
        "slow told": longest([each.slowed_s for each in found]),
        "named": longest([each.named_s for each in found]),
        "profiled": longest([each.profiled_s for each in found]),
        "right": sum(each.is_right for each in found),
        "blocked, s": max(each.blocked_s for each in found),
    }


def respond(fault: str, rank: int, cause: Cause) -> Response:
    """Run a job that is hurt, until it has been profiled."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        words = [str(HOLDFAST), "inject", "--fault", fault, "--profile", "--run-dir", str(run_dir)]
        process = subprocess.Popen(
            [*words, "--nproc-per-node", str(RANKS), *JOB],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            cwd=HERE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until_s = time.monotonic() + TOO_LONG_S
        try:
            while process.poll() is None and time.monotonic() < until_s:
                time.sleep(0.5)
                if any(isinstance(record.event, Profiled) for record in _records(run_dir)):
                    break
            return _judge(_records(run_dir), rank, cause)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            process.wait(60)


def _records(run_dir: Path) -> list[Record]:
    try:
        return read_run(run_dir).records
    except InputError:  # There is none yet.
        return []


def _judge(records: Sequence[Record], rank: int, cause: Cause) -> Response:
    began = next((_at(each) for each in records if isinstance(each.event, FaultInjected)), None)

    def after(kind: type) -> float | None:
        first = next((_at(each) for each in records if isinstance(each.event, kind)), None)
        return None if first is None or began is None else (first - began).total_seconds()

    profile = next((each.event for each in records if isinstance(each.event, Profiled)), None)
    suspect = profile.suspects[0] if profile is not None and profile.suspects else None
    return Response(
        slowed_s=after(JobSlowed),
        named_s=after(SuspectsNamed),
        profiled_s=after(Profiled),
        is_right=suspect is not None and suspect.ranks == [rank] and suspect.cause == cause,
        blocked_s=profile.blocked_s if profile is not None else 0.0,
    )


def _at(record: Record) -> datetime:
    return datetime.fromisoformat(record.stamp.at)
