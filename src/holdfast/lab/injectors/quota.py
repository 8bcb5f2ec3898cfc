"""A CPU quota on one process by cgroup, version 1 (``cpu.cfs_quota_us``) or 2 (``cpu.max``).

The target alone, with its threads, moves into a group of ours beside or below the one it was in, and
back on relief. The period is short, so that the quota bites within every step and not only on average.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec

from holdfast.errors import MissingError
from holdfast.lab.owner import is_leftover, owned_name

PERIOD_US = 10_000
LEAST_QUOTA_US = 1_000
"""The kernel refuses less."""


class CpuLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How much CPU time in which period."""

    quota_us: int
    period_us: int


def limit_for(severity: float) -> CpuLimit:
    """Return the limit that makes one computing thread slower by the factor."""
    quota_us = max(LEAST_QUOTA_US, round(PERIOD_US / severity))
    return CpuLimit(quota_us=quota_us, period_us=round(quota_us * severity))


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """Where the kernel's CPU controller is."""

    version: int
    path: Path


def find_mount(mounts: str) -> Mount | None:
    """Return the CPU controller among the lines of /proc/mounts; version 1 where both are there."""
    versions = {}
    for _, path, kind, options, *_ in map(str.split, mounts.splitlines()):
        if kind == "cgroup" and "cpu" in options.split(","):
            versions[1] = path
        elif kind == "cgroup2":
            versions[2] = path
    if 1 in versions:
        return Mount(version=1, path=Path(versions[1]))
    if 2 in versions and "cpu" in _read(Path(versions[2]) / "cgroup.controllers").split():
        return Mount(version=2, path=Path(versions[2]))
    return None


def available() -> tuple[bool, str]:
    """Say whether groups can be made here, and which version or why not."""
    mount = find_mount(_read(Path("/proc/mounts")))
    if mount is None:
        return False, "no CPU controller is mounted"
    if not os.access(mount.path, os.W_OK):
        return False, f"cgroup v{mount.version}, but {mount.path} is not writable (root)"
    return True, f"cgroup v{mount.version} at {mount.path}"


class CpuQuota:
    """The target's threads together get 1/severity of a core."""

    via = "cgroup"

    def __init__(self, pid: int, severity: float) -> None:
        mount = find_mount(_read(Path("/proc/mounts")))
        if mount is None:
            raise MissingError("cpu_quota via cgroup: no CPU controller is mounted; use via=sigstop")
        self._mount = mount
        self._pid = pid
        self._limit = limit_for(severity)
        self._home = mount.path / _group_of(pid, mount.version).lstrip("/")
        self.group = _parent_of_new(self._home, mount) / owned_name(str(pid))

    def apply(self) -> None:
        """Make the group and move the target into it."""
        self.group.mkdir(exist_ok=True)
        if self._mount.version == 1:
            (self.group / "cpu.cfs_period_us").write_text(str(self._limit.period_us))
            (self.group / "cpu.cfs_quota_us").write_text(str(self._limit.quota_us))
        else:
            (self.group / "cpu.max").write_text(f"{self._limit.quota_us} {self._limit.period_us}")
        (self.group / "cgroup.procs").write_text(str(self._pid))

    def relieve(self) -> None:
        """Move the target back and remove the group."""
        if self.group.exists():
            _empty(self.group, into=self._home)

    def throttled(self) -> int:
        """Return in how many periods the target ran into its quota so far."""
        return int(dict(map(str.split, _read(self.group / "cpu.stat").splitlines()))["nr_throttled"])


def sweep() -> None:
    """Remove groups whose owner died before it could relieve."""
    mount = find_mount(_read(Path("/proc/mounts")))
    for group in sorted(mount.path.rglob("holdfast-lab-*")) if mount is not None else []:
        if is_leftover(group.name):
            _empty(group, into=group.parent)


def _empty(group: Path, *, into: Path) -> None:
    for pid in _read(group / "cgroup.procs").split():
        with contextlib.suppress(OSError):  # It may have ended.
            (into / "cgroup.procs").write_text(pid)
    for _ in range(100):
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:  # A process that is ending still counts.
            time.sleep(0.01)


def _group_of(pid: int, version: int) -> str:
    for line in _read(Path(f"/proc/{pid}/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if (version == 1 and "cpu" in controllers.split(",")) or (version == 2 and not controllers):
            return path
    return "/"


def _parent_of_new(home: Path, mount: Mount) -> Path:
    # Version 2 allows no processes in inner groups, the root excepted: the new group stands beside the old.
    return home.parent if mount.version == 2 and home != mount.path else home


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
