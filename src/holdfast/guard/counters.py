"""Reads what the kernel has counted for one worker: a handful of files in its folder, and one per thread."""

from __future__ import annotations

import os

from holdfast.detect.counters import GroupTimes, ProcessCounters, ThreadTimes
from holdfast.guard.cgroups import CpuGroups
from holdfast.guard.kept import Kept, in_bytes, number, rest
from holdfast.guard.threads import Times

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NOT_KERNEL = (ValueError, IndexError, TypeError, OverflowError)
"""What reading something raises that the kernel would not have written."""
_GONE = frozenset("ZXx")
"""The kernel's letters for a process that has ended, also if nobody has asked for its exit code yet."""
_STATUS_SIZE = 1 << 14
"""The groups of its user are listed before what is wanted, and there may be hundreds."""


class Process:
    """The counters of one process; its files are kept open until ``close``."""

    def __init__(self, pid: int, root: str, kept: Kept, groups: CpuGroups) -> None:
        self._pid = pid
        self._folder = f"{root}/{pid}"
        self._kept = kept
        self._groups = groups
        self._threads: dict[int, str] = {}
        """The file of each thread known."""

    def read(self, delays: bytes | None) -> ProcessCounters | None:
        """Return the counters as they are now, None where the process is gone.

        ``delays`` is what the kernel says about whether it counts how long processes wait for storage.
        """
        stat = self._kept.read(f"{self._folder}/stat") or b""
        try:
            # Its name may have spaces and brackets in it. The first field behind is the third of the file.
            fields = stat[stat.rindex(b")") + 1 :].split()
            state = fields[0].decode()
            if state in _GONE:
                return None
            status = self._kept.read(f"{self._folder}/status", _STATUS_SIZE) or b""
            io = self._kept.read(f"{self._folder}/io") or b""
            return ProcessCounters(
                pid=self._pid,
                start_ticks=int(fields[19]),
                state=state,
                cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
                minor_faults=int(fields[7]),
                major_faults=int(fields[9]),
                rss_bytes=int(fields[21]) * _PAGE_BYTES,
                threads=self._times(int(fields[17])),
                voluntary_switches=number(rest(status, b"voluntary_ctxt_switches:")),
                involuntary_switches=number(rest(status, b"nonvoluntary_ctxt_switches:")),
                swapped_bytes=in_bytes(rest(status, b"VmSwap:")),
                block_io_delay_s=_block_io_delay_s(fields, delays),
                read_bytes=number(rest(io, b"read_bytes:")),
                written_bytes=number(rest(io, b"write_bytes:")),
                groups=self._cpu_groups(),
            )
        except _NOT_KERNEL:  # The file was empty, since the process is gone, or is none of the kernel's.
            return None

    def close(self) -> None:
        """Let go of its files."""
        names = ("stat", "status", "io", "cgroup")
        self._kept.drop([f"{self._folder}/{name}" for name in names])
        self._kept.drop(self._threads.values())

    def _cpu_groups(self) -> dict[str, GroupTimes] | None:
        text = self._kept.read(f"{self._folder}/cgroup")
        return None if text is None else self._groups.of(text)

    # --- threads ------------------------------------------------------------------------------

    def _times(self, count: int) -> dict[int, ThreadTimes] | None:
        """Return the times of all threads; which there are is only asked when they are not the same."""
        found = self._times_of(list(self._threads))
        if len(found) != count or len(found) != len(self._threads):
            self._list_threads()
            found |= self._times_of([tid for tid in self._threads if tid not in found])
            found = {tid: found[tid] for tid in self._threads if tid in found}
        # A kernel that does not count writes zeros, and whoever is here has run.
        return found if any(times.ran_s for times in found.values()) else None

    def _times_of(self, tids: list[int]) -> dict[int, ThreadTimes]:
        found = {}
        for tid in tids:
            data = self._kept.read(self._threads[tid], 128)
            if data is None:
                continue
            try:
                times = Times(*map(int, data.split()))
                found[tid] = ThreadTimes(ran_s=times.ran_ns / 1e9, waited_s=times.waited_ns / 1e9)
            except _NOT_KERNEL:
                continue
        return found

    def _list_threads(self) -> None:
        folder = f"{self._folder}/task"
        try:
            tids = [int(name) for name in os.listdir(folder) if name.isdecimal()]  # noqa: PTH208 - cheap.
        except OSError:
            tids = []
        self._kept.drop(path for tid, path in self._threads.items() if tid not in tids)
        self._threads = {tid: f"{folder}/{tid}/schedstat" for tid in tids}


def _block_io_delay_s(fields: list[bytes], delays: bytes | None) -> float | None:
    if len(fields) < 40 or (delays is not None and delays.strip() == b"0"):
        return None
    ticks = int(fields[39])
    # Older kernels do not say whether they count.
    return ticks / _TICKS_PER_S if ticks or delays is not None else None
