"""Traces of operations of jobs that never ran: 1F1B with a clock of its own, and something wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

Cost = Callable[[int, int, int], float]
"""Factor of a micro-batch's compute, by pipeline, stage and micro-batch."""


@dataclass(frozen=True)
class Job:
    """What is traced."""

    dp: int = 4
    pp: int = 4
    batches: int = 8
    steps: int = 6
    forward_s: float = 0.1
    backward_s: float = 0.2
    move_s: float = 0.001
    noise: float = 0.01
    cost: Cost = lambda dp, stage, batch: 1.0
    """The same in every step."""
    slow_link: tuple[int, int] | None = None
    """Pipeline and stage whose messages to the next stage take very long."""
    gc_s: dict[tuple[int, int], float] = field(default_factory=dict)


def draw(job: Job, rng: np.random.Generator) -> list[dict[str, object]]:
    """Return the rows of a trace."""
    rows: list[dict[str, object]] = []
    for step in range(job.steps):
        ready_s = {
            (dp, stage): end
            for dp in range(job.dp)
            for stage, end in enumerate(_pipeline(job, dp, step, rng, rows))
        }
        for stage in range(job.pp):
            last_s = max(ready_s[dp, stage] for dp in range(job.dp))
            for dp in range(job.dp):
                pause_s = job.gc_s.get((dp, stage), 0.0)
                end_s = last_s + 0.02 + max(job.gc_s.get((each, stage), 0.0) for each in range(job.dp))
                begin_s = ready_s[dp, stage]
                place = {
                    "dp_rank": dp,
                    "stage": stage,
                    "rank": stage * job.dp + dp,
                    "step": step,
                    "seq_id": 0,
                }
                rows.append({**place, "optype": "gc", "start_ts": begin_s, "duration": pause_s})
                rows.append(
                    {
                        **place,
                        "optype": "grads-reduce-scatter",
                        "start_ts": begin_s + pause_s,
                        "duration": end_s - begin_s - pause_s,
                    }
                )
    return rows


def _pipeline(
    job: Job, dp: int, step: int, rng: np.random.Generator, rows: list[dict[str, object]]
) -> list[float]:
    """Add one pipeline's rows, and return when each stage is done."""
    todo = [_order(job, stage) for stage in range(job.pp)]
    clock_s = [0.0] * job.pp
    sent: dict[tuple[str, int, int], float] = {}
    while any(todo):
        for stage in range(job.pp):
            while todo[stage]:
                kind, batch = todo[stage][0]
                source = stage - 1 if kind == "forward" else stage + 1
                is_fed = 0 <= source < job.pp
                if is_fed and (kind, source, batch) not in sent:
                    break
                todo[stage].pop(0)
                place = {
                    "dp_rank": dp,
                    "stage": stage,
                    "rank": stage * job.dp + dp,
                    "step": step,
                    "seq_id": batch,
                }
                if is_fed:
                    _message(
                        job,
                        (kind, dp, source),
                        (sent[kind, source, batch], clock_s[stage]),
                        place,
                        rows,
                    )
                    move_s = _move_s(job, dp, min(source, stage))
                    clock_s[stage] = max(sent[kind, source, batch], clock_s[stage]) + move_s
                base_s = job.forward_s if kind == "forward" else job.backward_s
                took_s = base_s * job.cost(dp, stage, batch) * float(rng.lognormal(0.0, job.noise))
                rows.append(
                    {**place, "optype": f"{kind}-compute", "start_ts": clock_s[stage], "duration": took_s}
                )
                clock_s[stage] += took_s
                sent[kind, stage, batch] = clock_s[stage]
    return clock_s


def _order(job: Job, stage: int) -> list[tuple[str, int]]:
    """Return 1F1B."""
    early = min(job.batches, job.pp - stage - 1)
    order = [("forward", batch) for batch in range(early)]
    for batch in range(job.batches - early):
        order += [("forward", batch + early), ("backward", batch)]
    return order + [("backward", batch) for batch in range(job.batches - early, job.batches)]


def _move_s(job: Job, dp: int, low: int) -> float:
    return job.move_s * (300 if job.slow_link == (dp, low) else 1)


def _message(
    job: Job,
    what: tuple[str, int, int],
    starts_s: tuple[float, float],
    place: dict[str, int],
    rows: list[dict[str, object]],
) -> None:
    """Add both ends of a message: each from when it comes to it until it is over."""
    kind, dp, source = what
    end_s = max(starts_s) + _move_s(job, dp, min(source, place["stage"]))
    sender = {**place, "stage": source, "rank": source * job.dp + dp}
    for end, start_s, name in ((sender, starts_s[0], "send"), (place, starts_s[1], "recv")):
        rows.append({**end, "optype": f"{kind}-{name}", "start_ts": start_s, "duration": end_s - start_s})


def write(rows: list[dict[str, object]], path: Path) -> Path:
    """Write a trace as CSV."""
    names = list(rows[0])
    lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path
