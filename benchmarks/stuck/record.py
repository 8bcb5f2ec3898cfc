"""What the Flight Recorder of each rank would write of a job that hangs."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from stuck.job import Job
from stuck.program import Call


@dataclass(frozen=True)
class Recorder:
    """How the job was set up to record."""

    size: int
    """Only the last so many operations are kept."""
    only_active: bool
    has_status: bool
    has_timing: bool

    @staticmethod
    def draw(rng: random.Random, ahead: int, *, has_timing: bool | None = None) -> Recorder:
        """Return a setting; without finished operations there are counts, or idle ranks would say nothing."""
        only_active = rng.random() < 0.5
        return Recorder(
            size=rng.randint(2 * ahead + 20, 200),
            only_active=only_active,
            has_status=only_active or rng.random() < 0.5,
            has_timing=rng.random() < 0.5 if has_timing is None else has_timing,
        )


def record(job: Job, rank: int, recorder: Recorder) -> dict[str, Any]:
    """Return the dump of one rank."""
    mine = [number for number, (_, ranks) in enumerate(job.program.groups) if rank in ranks]
    seqs: dict[int, int] = defaultdict(int)
    messages: dict[int, int] = defaultdict(int)
    last: dict[int, int] = dict.fromkeys(mine, 0)
    entries = []
    for index in range(job.ranks[rank].host):
        call = job.ranks[rank].calls[index]
        counts = messages if call.is_message else seqs
        counts[call.group] += 1
        last[call.group] = counts[call.group]
        entries.append(
            {
                "record_id": index,
                "pg_id": mine.index(call.group),
                "process_group": [str(call.group), job.program.groups[call.group][0]],
                "collective_seq_id": seqs[call.group],
                "p2p_seq_id": messages[call.group] if call.is_message else 0,
                "op_id": seqs[call.group] + messages[call.group],
                "profiling_name": f"nccl:{_name(call, rank, job.program.groups[call.group][1])}",
                "input_sizes": [[4, 8]],
                "input_dtypes": ["Float"],
                "is_p2p": call.is_message,
                **_state(job, rank, index, call, recorder),
            }
        )
    kept = entries[-recorder.size :]
    if recorder.only_active:
        kept = [each for each in kept if each["state"] != "completed"]
    document: dict[str, Any] = {"version": "2.9", "pg_config": _config(job, mine), "entries": kept}
    if recorder.has_status:
        document["pg_status"] = {
            str(mine.index(group)): {"last_enqueued_collective": count} for group, count in last.items()
        }
    return document


def _name(call: Call, rank: int, ranks: tuple[int, ...]) -> str:
    if not call.is_message:
        return call.kind
    src, dst = (ranks.index(each) for each in call.ranks)
    return f"send {src}->{dst}" if rank == call.ranks[0] else f"recv {dst}<-{src}"


def _state(job: Job, rank: int, index: int, call: Call, recorder: Recorder) -> dict[str, Any]:
    is_done = index in job.ranks[rank].seen_done
    is_started = recorder.has_timing and not job.ranks[rank].is_blind and rank in job.started[call]
    state = "completed" if is_done else "started" if is_started else "scheduled"
    return {
        "state": state,
        "retired": is_done,
        "time_discovered_started_ns": index + 1 if is_started else None,
        "time_discovered_completed_ns": None,
    }


def _config(job: Job, mine: list[int]) -> dict[str, Any]:
    groups = job.program.groups
    return {
        str(number): {"name": str(number), "desc": groups[number][0], "ranks": str(list(groups[number][1]))}
        for number in mine
    }
