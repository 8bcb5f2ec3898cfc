"""Nodes that are not there: what their guards would see, second by second."""

from __future__ import annotations

from holdfast.detect.counters import GroupTimes, NodeCounters, Pressure, ProcessCounters, Sample, ThreadTimes
from holdfast.detect.links import LinkSnapshot, SocketCounters
from holdfast.guard.batches import Batch
from holdfast.telemetry import Ask, Channel, ChannelUse, InCall, Lines, LineSeen, Step

THREADS, BUSY_THREADS = 40, 4
SOCKETS = 4
STEP_S = 1.0
SLOW_S = 0.5
GROUP = "/system.slice/job.scope/rank{}"


class Node:
    """One machine of a job that makes a step a second; from some step on one of its ranks may be slow."""

    def __init__(self, node: int, ranks: int, *, world: int, slow_from: int | None) -> None:
        self.node = node
        self.ranks = list(range(node * ranks, (node + 1) * ranks))
        self._slow_from = slow_from
        """Of its first rank."""
        everybody = list(range(world))
        self._channels = {
            rank: [
                Channel(number=1, kind="group", ranks=everybody, name="dp"),
                Channel(number=2, kind="group", ranks=self.ranks, name="tp"),
            ]
            for rank in self.ranks
        }

    def batch(self, second: int, at_s: float, *, job_slow_from: int, asked: Ask | None) -> Batch:
        """Return what is seen in a second."""
        is_slow = second >= job_slow_from
        return Batch(
            node=self.node,
            host=f"node{self.node:05}",
            steps=[self._step(rank, second, at_s, is_slow=is_slow) for rank in self.ranks],
            calls={rank: _call(rank, second, at_s) for rank in self.ranks},
            sample=Sample(
                at_s=at_s,
                node=_node(second),
                processes={rank: _process(rank, second) for rank in self.ranks},
            ),
            links=[_links(rank, second, at_s) for rank in self.ranks],
            channels=self._channels,
            answers=[_answer(rank, asked) for rank in self.ranks] if asked is not None else [],
        )

    def _step(self, rank: int, second: int, at_s: float, *, is_slow: bool) -> Step:
        is_guilty = is_slow and self._slow_from is not None and rank == self.ranks[0]
        jitter_s = ((rank * 7919 + second * 104729) % 1000) * 2e-6
        return Step(
            rank=rank,
            step=second,
            ended_s=at_s - 0.01,
            duration_s=STEP_S + jitter_s + (SLOW_S if is_slow else 0.0),
            wait_s=0.1 + (SLOW_S if is_slow and not is_guilty else 0.0),
            data_s=0.01,
            cpu_s=0.9,
            moved_bytes=1 << 30,
            calls=120,
            work=4096,
            channels=(
                ChannelUse(channel=1, wait_s=0.05, moved_bytes=1 << 29, calls=24),
                ChannelUse(channel=2, wait_s=0.05, moved_bytes=1 << 29, calls=96),
            ),
        )


def _call(rank: int, second: int, at_s: float) -> InCall:
    return InCall(rank=rank, calls=120 * second, steps=second, since_s=at_s - 0.002, channel=1)


def _process(rank: int, second: int) -> ProcessCounters:
    pid = 1000 + rank % 8 * 100
    threads = {
        pid + number: ThreadTimes(ran_s=0.4 * second * (number < BUSY_THREADS) + 0.1, waited_s=0.002 * second)
        for number in range(THREADS)
    }
    return ProcessCounters(
        pid=pid,
        start_ticks=4711,
        state="R",
        cpu_s=1.6 * second,
        minor_faults=10_000 + 20 * second,
        major_faults=3,
        rss_bytes=20 << 30,
        threads=threads,
        voluntary_switches=800 * second,
        involuntary_switches=9 * second,
        swapped_bytes=0,
        block_io_delay_s=0.01 * second,
        read_bytes=second << 20,
        written_bytes=second << 10,
        groups={GROUP.format(rank): GroupTimes(throttled_s=0.0, cpu_s=1.7 * second)},
    )


def _node(second: int) -> NodeCounters:
    pressure = Pressure(some_s=0.01 * second, full_s=0.001 * second)
    return NodeCounters(
        total_ticks=12_800 * second,
        idle_ticks=10_000 * second,
        iowait_ticks=3 * second,
        steal_ticks=0,
        running=20,
        context_switches=90_000 * second,
        cpu_pressure=pressure,
        io_pressure=pressure,
        memory_pressure=pressure,
        sent_segments=10_000 * second,
        retransmitted_segments=second,
        available_bytes=1 << 40,
        swapped_in_pages=0,
    )


def _links(rank: int, second: int, at_s: float) -> LinkSnapshot:
    sockets = [
        SocketCounters(
            local=f"10.{rank >> 8 & 255}.{rank & 255}.1:{40_000 + number}",
            peer=f"10.{rank + 8 >> 8 & 255}.{rank + 8 & 255}.1:{50_000 + number}",
            mss_bytes=8948,
            rtt_us=180,
            min_rtt_us=90,
            retransmits=0,
            bytes_acked=second * 300_000_000,
            bytes_received=second * 300_000_000,
            notsent_bytes=0,
            segments_sent=second * 40_000,
            delivery_rate_bytes_s=3_000_000_000,
            busy_us=second * 200_000,
            rwnd_limited_us=0,
            sndbuf_limited_us=0,
            spurious_retransmits=0,
        )
        for number in range(SOCKETS)
    ]
    return LinkSnapshot(
        rank=rank,
        at_s=at_s - 0.3,
        host=f"boot/{rank // 8}",
        sockets=sockets,
        steps=second,
        delayed_acks=0,
        pid=9,
    )


def _answer(rank: int, asked: Ask) -> Lines:
    lines = [
        LineSeen(
            count=20 - number,
            file="/home/somebody/train/model.py",
            line=100 + number,
            function="forward",
            source="hidden = self.layers[index](hidden, mask)",
            inner=["linear: return torch._C._nn.linear(input, weight, bias)"] * 5,
        )
        for number in range(20)
    ]
    stack = [f"/home/somebody/train/model.py:{100 + depth} forward" for depth in range(30)]
    return Lines(ask=asked.id, rank=rank, samples=210, lines=lines, stack=stack)
