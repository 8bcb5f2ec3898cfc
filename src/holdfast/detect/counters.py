"""What the kernel has counted for a node and for each of its workers; what goes into ``detect.host``.

Counters only grow. What the machine does not count is None, never 0.
"""

from __future__ import annotations

import msgspec


class ThreadTimes(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel's scheduler has counted for a thread."""

    ran_s: float = 0.0
    waited_s: float = 0.0
    """For a processor; a wait is added when it is over."""


class GroupTimes(msgspec.Struct, frozen=True, kw_only=True):
    """What a CPU group of the kernel has counted, over all processors and processes of it."""

    throttled_s: float
    """How long it was held up by its quota; several processors at once count several times."""
    cpu_s: float | None = None


class ProcessCounters(msgspec.Struct, frozen=True, kw_only=True):
    """Of one worker; over all its threads where not said otherwise, without its children.

    The kernel adds a child when it is reaped, with its whole life at once: no rate could be made of that.
    """

    pid: int
    start_ticks: int
    """When it started; tells it from another process that was given its number."""
    state: str
    """The kernel's letter for what its first thread does."""
    cpu_s: float
    """In user and system mode."""
    minor_faults: int
    major_faults: int
    rss_bytes: int
    threads: dict[int, ThreadTimes] | None = None
    """Those alive, by the kernel's number."""
    voluntary_switches: int | None = None
    """Of its first thread, the only one that the kernel gives without asking each."""
    involuntary_switches: int | None = None
    """Of its first thread too."""
    swapped_bytes: int | None = None
    block_io_delay_s: float | None = None
    read_bytes: int | None = None
    """From storage, not from the cache; with its reaped children."""
    written_bytes: int | None = None
    groups: dict[str, GroupTimes] | None = None
    """Its CPU group and those around it, by path; the quota of each holds it up."""

    @property
    def run_queue_wait_s(self) -> float | None:
        """How long its living threads waited for a processor, added up."""
        return None if self.threads is None else sum(times.waited_s for times in self.threads.values())

    @property
    def throttled_s(self) -> float | None:
        """How long quotas held up its CPU groups, added up."""
        return None if self.groups is None else sum(times.throttled_s for times in self.groups.values())


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """How long tasks stood still for want of a resource."""

    some_s: float
    """At least one of them."""
    full_s: float | None = None
    """All of them at once."""


class NodeCounters(msgspec.Struct, frozen=True, kw_only=True):
    """Of a whole machine."""

    total_ticks: int | None = None
    """Of all processors together, as those below."""
    idle_ticks: int | None = None
    iowait_ticks: int | None = None
    steal_ticks: int | None = None
    """When a processor had work, but the hypervisor ran another machine."""
    running: int | None = None
    """Threads that run or could, now."""
    context_switches: int | None = None
    cpu_pressure: Pressure | None = None
    io_pressure: Pressure | None = None
    memory_pressure: Pressure | None = None
    sent_segments: int | None = None
    """Of TCP."""
    retransmitted_segments: int | None = None
    available_bytes: int | None = None
    swapped_in_pages: int | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a node and its workers."""

    at_s: float
    """By the node's monotonic clock."""
    node: NodeCounters
    processes: dict[int, ProcessCounters]
    """By rank; those that are gone are not in it."""
