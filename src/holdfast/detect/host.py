"""What the host does to each worker of a node: the rates between two looks at the kernel's counters.

A rate is the difference of a counter over the time between. That of a counter which went back is None, as is
whatever the machine does not count.
"""

from __future__ import annotations

import msgspec

from holdfast.detect.counters import NodeCounters, Pressure, ProcessCounters, Sample, ThreadTimes

_RUNNABLE = "R"
"""The kernel's letter for a thread that runs or waits for a processor."""


class NodeRates(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine did; shares lie between 0 and 1."""

    steal_share: float | None = None
    """Of the time of all processors, as those below."""
    iowait_share: float | None = None
    idle_share: float | None = None
    stolen_of_busy: float | None = None
    """The part of the processor time asked for that the hypervisor gave to others."""
    running: int | None = None
    context_switches_per_s: float | None = None
    cpu_pressure_share: float | None = None
    """Of the time; at least one task waited. So do the next two."""
    io_pressure_share: float | None = None
    memory_pressure_share: float | None = None
    io_full_share: float | None = None
    """Of the time; all tasks waited."""
    memory_full_share: float | None = None
    retransmit_share: float | None = None
    """Of the TCP segments sent."""
    available_bytes: int | None = None
    swapped_in_per_s: float | None = None
    """Pages."""


class ProcessRates(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker did and what was done to it, in seconds per second where a share."""

    state: str = "S"
    cpu_share: float | None = None
    """Of one processor; over 1 where threads run side by side."""
    run_queue_share: float | None = None
    """Waited for a processor; over 1 where many threads wait."""
    main_run_queue_share: float | None = None
    """The same of the thread that waited most: no more than that can have held up the training."""
    main_idle_share: float | None = None
    """The busiest thread neither ran nor waited for a processor."""
    throttled_share: float | None = None
    """Its CPU groups were held up by their quotas; over 1 where they hold up many processors."""
    held_share: float | None = None
    """What that was for one thread."""
    stolen_share: float | None = None
    """Other machines ran on its processor; estimated from the whole node."""
    voluntary_switches_per_s: float | None = None
    involuntary_switches_per_s: float | None = None
    minor_faults_per_s: float | None = None
    major_faults_per_s: float | None = None
    block_io_share: float | None = None
    """Waited for storage, over all threads."""
    read_bytes_per_s: float | None = None
    written_bytes_per_s: float | None = None
    rss_bytes: int | None = None
    swapped_bytes: int | None = None
    node: NodeRates = NodeRates()
    """Of the machine that it is on."""


class HostStrain(msgspec.Struct, frozen=True, kw_only=True):
    """What happened on a node between two looks."""

    elapsed_s: float
    node: NodeRates
    ranks: dict[int, ProcessRates]
    """Those who are the same process in both looks."""


def strain_between(before: Sample, after: Sample) -> HostStrain:
    """Return what happened between two looks at the same node."""
    elapsed_s = after.at_s - before.at_s
    node = node_rates(before.node, after.node, elapsed_s)
    found = {
        rank: rates(before.processes[rank], now, elapsed_s, node)
        for rank, now in sorted(after.processes.items())
        if rank in before.processes
    }
    ranks = {rank: each for rank, each in found.items() if each is not None}
    return HostStrain(elapsed_s=elapsed_s, node=node, ranks=ranks)


def node_rates(before: NodeCounters, after: NodeCounters, elapsed_s: float) -> NodeRates:
    """Return what the machine did, all None where no time has passed."""
    if elapsed_s <= 0:
        return NodeRates()
    total = _gain(before.total_ticks, after.total_ticks)
    idle = _gain(before.idle_ticks, after.idle_ticks)
    iowait = _gain(before.iowait_ticks, after.iowait_ticks)
    steal = _gain(before.steal_ticks, after.steal_ticks)
    busy = None if total is None or idle is None or iowait is None else total - idle - iowait
    resent = _gain(before.retransmitted_segments, after.retransmitted_segments)
    return NodeRates(
        steal_share=_part(steal, total),
        iowait_share=_part(iowait, total),
        idle_share=_part(idle, total),
        stolen_of_busy=_part(steal, busy),
        running=after.running,
        context_switches_per_s=_part(_gain(before.context_switches, after.context_switches), elapsed_s),
        cpu_pressure_share=_some(before.cpu_pressure, after.cpu_pressure, elapsed_s),
        io_pressure_share=_some(before.io_pressure, after.io_pressure, elapsed_s),
        memory_pressure_share=_some(before.memory_pressure, after.memory_pressure, elapsed_s),
        io_full_share=_full(before.io_pressure, after.io_pressure, elapsed_s),
        memory_full_share=_full(before.memory_pressure, after.memory_pressure, elapsed_s),
        retransmit_share=_part(resent, _gain(before.sent_segments, after.sent_segments)),
        available_bytes=after.available_bytes,
        swapped_in_per_s=_part(_gain(before.swapped_in_pages, after.swapped_in_pages), elapsed_s),
    )


def rates(
    before: ProcessCounters, after: ProcessCounters, elapsed_s: float, node: NodeRates | None = None
) -> ProcessRates | None:
    """Return what happened to a worker, None where it is another process or no time has passed."""
    if elapsed_s <= 0 or (before.pid, before.start_ticks) != (after.pid, after.start_ticks):
        return None
    node = node or NodeRates()

    def per_s(name: str) -> float | None:
        return _part(_gain(getattr(before, name), getattr(after, name)), elapsed_s)

    cpu_share = per_s("cpu_s")
    spent = _thread_shares(before, after, elapsed_s)
    throttled_share, held_share = _throttling(before, after, elapsed_s)
    return ProcessRates(
        state=after.state,
        cpu_share=cpu_share,
        run_queue_share=None if spent is None else sum(each.waited_s for each in spent),
        main_run_queue_share=None if spent is None else max(each.waited_s for each in spent),
        main_idle_share=None if spent is None else 1 - min(1.0, max(e.ran_s + e.waited_s for e in spent)),
        throttled_share=throttled_share,
        held_share=held_share,
        stolen_share=_stolen(cpu_share, node.stolen_of_busy),
        voluntary_switches_per_s=per_s("voluntary_switches"),
        involuntary_switches_per_s=per_s("involuntary_switches"),
        minor_faults_per_s=per_s("minor_faults"),
        major_faults_per_s=per_s("major_faults"),
        block_io_share=per_s("block_io_delay_s"),
        read_bytes_per_s=per_s("read_bytes"),
        written_bytes_per_s=per_s("written_bytes"),
        rss_bytes=after.rss_bytes,
        swapped_bytes=after.swapped_bytes,
        node=node,
    )


def _thread_shares(
    before: ProcessCounters, after: ProcessCounters, elapsed_s: float
) -> list[ThreadTimes] | None:
    """Return what each thread did per second, None where that is not counted."""
    if not before.threads or not after.threads:
        return None
    spent = {tid: _spent(before.threads.get(tid), now) for tid, now in after.threads.items()}
    first = spent.get(after.pid)
    if first is not None and _never_slept(before, after):
        # It may have waited all the time, and is not told of that until it has run.
        waited_s = max(first.waited_s, elapsed_s - first.ran_s)
        spent[after.pid] = ThreadTimes(ran_s=first.ran_s, waited_s=waited_s)
    return [
        # More than all the time is a wait that began before.
        ThreadTimes(ran_s=min(1.0, each.ran_s / elapsed_s), waited_s=min(1.0, each.waited_s / elapsed_s))
        for each in spent.values()
    ]


def _spent(before: ThreadTimes | None, now: ThreadTimes) -> ThreadTimes:
    # A thread that is new started from nothing; so did one that was given the number of another.
    if before is None or now.ran_s < before.ran_s or now.waited_s < before.waited_s:
        return now
    return ThreadTimes(ran_s=now.ran_s - before.ran_s, waited_s=now.waited_s - before.waited_s)


def _never_slept(before: ProcessCounters, after: ProcessCounters) -> bool:
    # Whoever goes to sleep gives up its processor of its own will.
    is_runnable = before.state == after.state == _RUNNABLE
    return (
        is_runnable
        and before.voluntary_switches is not None
        and (before.voluntary_switches == after.voluntary_switches)
    )


def _throttling(
    before: ProcessCounters, after: ProcessCounters, elapsed_s: float
) -> tuple[float | None, float | None]:
    """Return for how long its groups were held up per second, and for how long that held up one thread."""
    total: float | None = None
    held = 0.0
    for path, now in (after.groups or {}).items():
        past = (before.groups or {}).get(path)  # None: it was moved there.
        throttled = None if past is None else _part(_gain(past.throttled_s, now.throttled_s), elapsed_s)
        if past is None or throttled is None:
            continue
        cpu = _gain(past.cpu_s, now.cpu_s)
        cpu = _gain(before.cpu_s, after.cpu_s) if cpu is None else cpu
        total = (total or 0.0) + throttled
        # With a quota of q processors and n threads that want one each, q run and n - q are held up: the
        # part n - q of n is what each of them loses.
        held = max(held, throttled / max(1.0, throttled + (cpu or 0.0) / elapsed_s))
    return (None, None) if total is None else (total, held)


def _stolen(cpu_share: float | None, stolen_of_busy: float | None) -> float | None:
    if cpu_share is None or stolen_of_busy is None:
        return None
    if stolen_of_busy >= 1:
        return 1.0
    # For what a thread ran, it had asked for 1 / (1 - stolen) of that.
    return min(1.0, min(1.0, cpu_share) * stolen_of_busy / (1 - stolen_of_busy))


def _some(before: Pressure | None, after: Pressure | None, elapsed_s: float) -> float | None:
    return None if before is None or after is None else _share(before.some_s, after.some_s, elapsed_s)


def _full(before: Pressure | None, after: Pressure | None, elapsed_s: float) -> float | None:
    return None if before is None or after is None else _share(before.full_s, after.full_s, elapsed_s)


def _share(before: float | None, after: float | None, elapsed_s: float) -> float | None:
    share = _part(_gain(before, after), elapsed_s)
    return None if share is None else min(1.0, share)


def _gain(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None or after < before else after - before


def _part(value: float | None, whole: float | None) -> float | None:
    return None if value is None or whole is None or whole <= 0 else value / whole
