"""Made-up runs for a server: events and summaries as guards would send them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from helpers import make_death
from holdfast.findings import ChangePoint, Suspect
from holdfast.guard.eventlog import encode
from holdfast.serve.store import Store
from holdfast.shipment import Run, Shipment
from holdfast.telemetry import Summary
from holdfast.values import (
    AnyEvent,
    Applied,
    AttemptStarted,
    Decided,
    JobSlowed,
    Profiled,
    Regrouped,
    RunStarted,
    Stamp,
    StepSeen,
    SuspectsNamed,
    Verified,
    WorkerDied,
)

EVIL = "<script>alert(1)</script>\"'&{{7*7}}"
"""What must stay text wherever it is shown."""


class Scribe:
    """Writes the story of one run and sends it to a store; its clock ends where the test begins."""

    def __init__(self, name: str, *, began_s_ago: float = 600.0, command: list[str] | None = None) -> None:
        self.run = Run(
            key=re.sub(r"[^a-z0-9-]", "", name)[:20] + "-1",
            name=name,
            run_id="r1",
            host="node-0",
            started_at=self._at(began_s_ago),
            command=command or ["train.py", "--config", "large.toml"],
        )
        self.attempt = 0
        self._events: dict[int, list[msgspec.Raw]] = {}
        self._summaries: list[Summary] = []
        self._count = 0

    @property
    def key(self) -> str:
        """How the server knows it."""
        return self.run.key

    def tell(self, event: AnyEvent, *, s_ago: float = 0.0, node: int = 0, host: str = "") -> Scribe:
        """Add an event."""
        self._count += 1
        stamp = Stamp(
            schema=1,
            event_id=f"{self.key}-{self._count}",
            at=self._at(s_ago),
            host=host or f"node-{node}",
            node=node,
            attempt=self.attempt,
        )
        self._events.setdefault(node, []).append(msgspec.Raw(encode(stamp, event).strip()))
        return self

    def pace(self, step: int, times: Mapping[int, tuple[float, float]], *, s_ago: float = 0.0) -> Scribe:
        """Add one second: for each rank the step time and what of it was its own."""
        self._summaries.append(
            Summary(
                at=self._at(s_ago),
                node=0,
                attempt=self.attempt,
                steps={str(rank): step for rank in times},
                duration_s={str(rank): whole for rank, (whole, _) in times.items()},
                own_s={str(rank): own for rank, (_, own) in times.items()},
            )
        )
        return self

    def send(self, store: Store) -> Scribe:
        """Hand over what was added since the last time."""
        for taken in store.take(self.shipments()):
            assert not taken.refused, taken.refused
        return self

    def shipments(self) -> list[Shipment]:
        """Return what was added since the last time, one for each node."""
        found = [
            Shipment(run=self.run, node=node, events=events, summaries=self._summaries if node == 0 else [])
            # What node 0 decided rests on what the others had sent before.
            for node, events in sorted(self._events.items(), reverse=True)
        ]
        if 0 not in self._events:
            found.append(Shipment(run=self.run, node=0, summaries=self._summaries))
        self._events, self._summaries = {}, []
        return found

    def _at(self, s_ago: float) -> str:
        return (datetime.now(UTC) - timedelta(seconds=s_ago)).isoformat()


def start(scribe: Scribe, *, ranks: int = 8, nodes: int = 1, s_ago: float = 600.0) -> Scribe:
    """Begin a run whose workers are dealt out evenly."""
    scribe.tell(RunStarted(run_id="r1", argv=scribe.run.command, pid=7), s_ago=s_ago)
    each = ranks // nodes
    for node in range(nodes):
        mine = list(range(node * each, (node + 1) * each))
        scribe.tell(
            AttemptStarted(world_size=ranks, nodes=nodes, ranks=mine, pids=mine), s_ago=s_ago - 2, node=node
        )
        for rank in mine:
            scribe.tell(StepSeen(rank=rank, step=0), s_ago=s_ago - 10, node=node)
    return scribe


def make_pipeline(scribe: Scribe, *, dp: int = 4, pp: int = 4, microbatches: int = 8) -> Scribe:
    """Begin a run of pipelines on nodes of four ranks."""
    start(scribe, ranks=dp * pp, nodes=max(1, dp * pp // 4))
    members = list(range(dp * pp))
    return scribe.tell(
        Regrouped(
            generation=0,
            members=members,
            version=0,
            places=members,
            pp=pp,
            microbatches=microbatches,
            dead=[],
        ),
        s_ago=595,
    )


def make_slow(scribe: Scribe, *, ranks: int = 16, slow: int = 6, is_done: bool = True) -> Scribe:
    """Tell how a rank got slow, was named, and what was done about it."""
    for second in range(590, 0, -2):
        factor = 1.0 if second > 300 else 1.85 if second > 200 or not is_done else 1.22
        wave = 1 + 0.03 * math.sin(second / 3) + 0.015 * math.sin(second * 1.7)
        whole = 0.5 * factor * wave
        times = {
            rank: (whole * (1 + 0.004 * rank), 0.38 * wave * (1.9 if rank == slow and second <= 300 else 1.0))
            for rank in range(ranks)
        }
        scribe.pace((600 - second) * 2, times, s_ago=second)
    change = ChangePoint(
        step=600,
        detected_step=612,
        before_s=0.5,
        after_s=0.93,
        direction="slow",
        is_slow=True,
        confidence=0.99,
    )
    suspect = Suspect(
        ranks=[slow],
        hosts=["node-1"],
        cause="compute",
        slowdown=1.9,
        cost_s=43.0,
        confidence=0.93,
        victims=[rank for rank in range(ranks) if rank != slow],
        evidence=[
            f"rank {slow} needs 0.72 s of its own for a step, the median of all ranks is 0.38 s",
            "its compute takes 1.88 times as long as that of the others for the same product of matrices",
        ],
    )
    scribe.tell(JobSlowed(change=change), s_ago=292)
    scribe.tell(SuspectsNamed(since_step=600, suspects=[suspect]), s_ago=280)
    if is_done:
        decided = Decided(
            number=1,
            level="S2",
            since_step=600,
            speeds={slow: 0.53},
            gain=0.6,
            healthy_s=0.5,
            saved_s=31.0,
            lost_s=43.0,
            price_s=0.4,
            outlook_s=1800.0,
        )
        scribe.tell(decided, s_ago=215)
        scribe.tell(Applied(number=1, level="S2", version=800, pause_s=0.36), s_ago=200)
        scribe.tell(
            Verified(number=1, level="S2", promised=0.6, gained=0.61, healthy_s=0.5, is_enough=True),
            s_ago=150,
        )
    return scribe


def make_death_story(scribe: Scribe, *, rank: int = 3, members: int = 8, error: str = "") -> Scribe:
    """Tell how a worker died and the others went on."""
    for second in range(590, 0, -2):
        if not 90 < second < 97:
            scribe.pace(600 - second, dict.fromkeys(range(members), (0.4, 0.3)), s_ago=second)
    death = make_death(rank=rank, node=0, host="node-0", signal="SIGKILL", exit_code=137, error=error or None)
    scribe.tell(WorkerDied(death=death), s_ago=97)
    left = [each for each in range(members) if each != rank]
    scribe.tell(Regrouped(generation=1, members=left, version=504, places=left, pp=1, dead=[rank]), s_ago=94)
    return scribe


def make_profile(scribe: Scribe, *, s_ago: float = 240.0) -> Scribe:
    """Tell of a profile that named a function."""
    suspect = Suspect(
        kind="function",
        ranks=[6],
        hosts=["node-1"],
        function="attention.forward",
        cause="compute",
        slowdown=1.9,
        confidence=0.9,
        evidence=["attention.forward takes 41 % of the time of rank 6, 22 % of the others"],
    )
    return scribe.tell(
        Profiled(
            order="p1",
            why="the job got slow",
            first_step=640,
            last_step=649,
            suspects=[suspect],
            blocked_s=0.42,
            folder="runs/llm/profiles/p1",
        ),
        s_ago=s_ago,
    )
