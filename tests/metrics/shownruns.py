"""Runs to be shown: values made by hand, and shipments that a store turns into runs in trouble."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from prometheus_client.core import Metric

from helpers import CHANGE, SUSPECT, make_death
from holdfast.guard.eventlog import encode
from holdfast.incidents.values import RunView, Worker
from holdfast.metrics.seen import Pace, RunSeen, Tally
from holdfast.shipment import Run, Shipment
from holdfast.telemetry import Summary
from holdfast.values import (
    AnyEvent,
    AttemptStarted,
    JobHung,
    JobSlowed,
    Regrouped,
    RunEnded,
    RunStarted,
    Stamp,
    StepSeen,
    SuspectsNamed,
    WorkerDied,
)

Series = dict[str, float]
"""By name and labels, as Prometheus writes them."""
HOSTS = ("gpu-1", "gpu-2")
_START: tuple[AnyEvent, ...] = (
    RunStarted(run_id="x", argv=["train.py"], pid=7),
    AttemptStarted(world_size=4, nodes=1, ranks=[0, 1, 2, 3], pids=[8, 9, 10, 11]),
    *(StepSeen(rank=rank, step=0) for rank in range(4)),
)
TROUBLES: dict[str, tuple[AnyEvent, ...]] = {
    "well": _START,
    "slow": (*_START, JobSlowed(change=CHANGE), SuspectsNamed(since_step=7, suspects=[SUSPECT])),
    "hung": (*_START, JobHung(lasted_s=12.5, limit_s=10.0, suspects=[SUSPECT])),
    "short": (
        *_START,
        Regrouped(generation=0, members=[0, 1, 2, 3], version=1, dead=[]),
        WorkerDied(death=make_death(rank=3)),
        Regrouped(generation=1, members=[0, 1, 2], version=5, dead=[3]),
    ),
    "failed": (*_START, RunEnded(exit_code=1, reason="failed")),
    "done": (*_START, RunEnded(exit_code=0, reason="succeeded")),
}
"""Events of runs, by what is wrong with them."""


def make_shipment(name: str, *, at: datetime, slow_rank: int = 1) -> Shipment:
    """What a guard sends of one of the troubled runs, all of it at one moment."""
    step = 0 if name == "hung" else 9
    events = [
        msgspec.Raw(
            encode(
                Stamp(
                    schema=1, event_id=f"{name}-{number}", at=at.isoformat(), host="gpu-1", node=0, attempt=0
                ),
                event,
            )
        )
        for number, event in enumerate(TROUBLES[name])
    ]
    own_s = {str(rank): 0.4 if rank == slow_rank else 0.1 for rank in range(4)}
    row = Summary(
        at=at.isoformat(),
        node=0,
        attempt=0,
        steps=dict.fromkeys(own_s, step),
        duration_s=dict.fromkeys(own_s, 0.5),
        own_s=own_s,
    )
    run = Run(
        key=f"{name:a<8}0123456789", name=f"run-{name}", run_id="x", host="gpu-1", started_at=at.isoformat()
    )
    return Shipment(run=run, node=0, events=events, summaries=[row])


def make_seen(ranks: int, *, hosts: int = 1, slow: int = 0, **fields: object) -> RunSeen:
    """A run of so many ranks, of whom the first few are slower than the others, the first most."""
    workers = tuple(
        Worker(rank=rank, node=rank % hosts, host=f"gpu-{rank % hosts}", state="training")
        for rank in range(ranks)
    )
    paces = tuple(
        Pace(rank=rank, step_s=1.0, own_s=0.5 * (1 + (slow - rank if rank < slow else 0)))
        for rank in range(ranks)
    )
    usual = RunSeen(
        key="0123456789abcdef",
        name="big",
        host="gpu-0",
        heard_s=1e9,
        view=RunView(run_id="x", state="training", world_size=ranks, workers=workers, step=5),
        tally=Tally(),
        paces=paces,
    )
    return msgspec.structs.replace(usual, **fields)


def read_series(metrics: list[Metric]) -> Series:
    """All values, by name and labels."""
    return {
        f"{sample.name}{{{','.join(f'{k}={v}' for k, v in sample.labels.items())}}}": sample.value
        for metric in metrics
        for sample in metric.samples
    }


def utc(minutes: float = 0) -> datetime:
    """So many minutes before now."""
    return datetime.now(UTC) - timedelta(minutes=minutes)
