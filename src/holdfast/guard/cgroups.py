"""How long quotas have held up the CPU groups of a process: cgroups of version 1 and 2.

A quota may be on the group of the process or on any around it, and each counts only what its own did.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.detect.counters import GroupTimes
from holdfast.guard.kept import Kept, number, rest

_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """Where the kernel's CPU controller is to be found."""

    version: int
    top: str
    """The group that is seen there: not the outermost one inside a container."""
    point: str


def find_mount(mountinfo: str) -> Mount | None:
    """Return the CPU controller among the lines of a ``mountinfo`` file; version 1 where both are there."""
    found: Mount | None = None
    for line in mountinfo.splitlines():
        where, _, what = line.partition(" - ")
        kind, _, options = (what.split() + [""] * 3)[:3]
        fields = where.split()
        if len(fields) < 5:
            continue
        top, point = (_ESCAPED.sub(lambda match: chr(int(match[1], 8)), each) for each in fields[3:5])
        if kind == "cgroup" and "cpu" in options.split(","):
            return Mount(1, top, point)
        if kind == "cgroup2" and found is None:
            found = Mount(2, top, point)
    return found


class CpuGroups:
    """The CPU groups of a machine; what was read of one is good until the next ``renew``."""

    def __init__(self, root: str, kept: Kept) -> None:
        self._kept = kept
        mountinfo = kept.read_all(f"{root}/self/mountinfo") or b""
        kept.drop([f"{root}/self/mountinfo"])
        self._mount = find_mount(mountinfo.decode(errors="replace"))
        self._has_usage = self._mount is not None and (
            kept.read(f"{self._mount.point}/cpuacct.usage") is not None
        )
        self._read: dict[str, GroupTimes | None] = {}
        self._before: set[str] = set()
        self._chains: dict[bytes, list[str]] = {}

    def renew(self) -> None:
        """Forget what was read, and let go of groups that nobody asked for since the last time."""
        for folder in self._before.difference(self._read):
            self._kept.drop([f"{folder}/cpu.stat", f"{folder}/cpuacct.usage"])
        self._before = set(self._read)
        self._read = {}
        self._chains = {}

    def of(self, text: bytes) -> dict[str, GroupTimes] | None:
        """Return the groups of a process by the text of its ``cgroup`` file, None where none is counted."""
        if text not in self._chains:
            self._chains[text] = self._chain(text)
        found = {folder: self._times(folder) for folder in self._chains[text]}
        return {folder: times for folder, times in found.items() if times is not None} or None

    def _chain(self, text: bytes) -> list[str]:
        """Return the folders of the group of a process and of those around it."""
        if self._mount is None:
            return []
        path = _path_in(text.decode(errors="replace"), self._mount)
        if path is None:
            return []
        words = [word for word in path.split("/") if word]
        return ["/".join([self._mount.point, *words[:end]]) for end in range(len(words), -1, -1)]

    def _times(self, folder: str) -> GroupTimes | None:
        if folder not in self._read:
            self._read[folder] = self._count(folder)
        return self._read[folder]

    def _count(self, folder: str) -> GroupTimes | None:
        data = self._kept.read(f"{folder}/cpu.stat") or b""
        if self._mount is not None and self._mount.version == 1:
            return _group_times(rest(data, b"throttled_time "), self._used(folder), per_s=1e9)
        return _group_times(rest(data, b"throttled_usec "), rest(data, b"usage_usec "), per_s=1e6)

    def _used(self, folder: str) -> bytes | None:
        # Of a controller that is usually mounted together with this one.
        return self._kept.read(f"{folder}/cpuacct.usage") if self._has_usage else None


def _group_times(throttled: bytes | None, used: bytes | None, *, per_s: float) -> GroupTimes | None:
    held, cpu = number(throttled), number(used)
    if held is None:
        return None
    return GroupTimes(throttled_s=held / per_s, cpu_s=None if cpu is None else cpu / per_s)


def _path_in(text: str, mount: Mount) -> str | None:
    """Return the group of a process as seen from the mount, None where it is out of sight."""
    for line in text.splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        is_ours = "cpu" in controllers.split(",") if mount.version == 1 else line.startswith("0::")
        if not is_ours or ".." in path.split("/"):
            continue
        top = mount.top.rstrip("/")
        if path == top or path.startswith(f"{top}/"):
            return path[len(top) :]
    return None
