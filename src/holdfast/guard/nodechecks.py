"""Health checks that need nothing but Linux: disk, mount, clock, memory, stuck processes.

``python -m holdfast.guard.nodechecks disk --path /scratch`` prints one line and exits with 0 (fine), 1
(warning), 2 (critical) or 3 (cannot be told), as Nagios does.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from holdfast.guard.healthchecks import CRITICAL, OK, UNKNOWN, WARNING

Result = tuple[int, str]
_STUCK_AFTER_S = 300.0
_UNSYNCHRONISED = 0x40
"""STA_UNSYNC of adjtimex(2)."""
_LOOKS, _BETWEEN_S = 3, 0.5


def disk(path: Path, warn: float = 80.0, critical: float = 85.0) -> Result:
    """Say how full a file system is, in percent of bytes or of inodes, whichever is more."""
    try:
        found = os.statvfs(path)
    except OSError as error:
        return CRITICAL, f"{path}: {error.strerror}"
    used = 100 * (1 - found.f_bavail / found.f_blocks) if found.f_blocks else 0.0
    inodes = 100 * (1 - found.f_favail / found.f_files) if found.f_files else 0.0
    said = f"{path} is {used:.0f} % full, inodes {inodes:.0f} %"
    return _above(max(used, inodes), warn, critical), said


def mount(path: Path) -> Result:
    """Say whether something is mounted at a path, and answers."""
    if not path.is_mount():
        return CRITICAL, f"nothing is mounted at {path}"
    try:
        next(iter(path.iterdir()), None)
    except OSError as error:
        return CRITICAL, f"{path} is mounted and does not answer: {error.strerror}"
    return OK, f"{path} is mounted and answers"


class _Timex(ctypes.Structure):
    """The start of struct timex; the rest is room."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("room", ctypes.c_byte * 256),
    )


def clock(warn_ms: float = 100.0, critical_ms: float = 1000.0) -> Result:
    """Say whether the kernel's clock is kept in step with others', and how far it may be off."""
    timex = _Timex()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(ctypes.byref(timex)) < 0:
        return UNKNOWN, f"adjtimex: {os.strerror(ctypes.get_errno())}"
    if timex.status & _UNSYNCHRONISED:
        return WARNING, "nobody keeps the clock in step"
    off_ms = timex.maxerror / 1000
    return _above(off_ms, warn_ms, critical_ms), f"the clock may be {off_ms:.0f} ms off"


def memory(least_gb: float = 0.0, warn: float = 10.0, critical: float = 3.0) -> Result:
    """Say whether the machine has the memory that it should have, and some of it left, in percent."""
    found = psutil.virtual_memory()
    total_gb, left = found.total / 1e9, 100 * found.available / found.total
    if total_gb < least_gb:
        return CRITICAL, f"{total_gb:.1f} GB of memory, expected {least_gb:g}"
    return _above(-left, -warn, -critical), f"{left:.0f} % of {total_gb:.1f} GB available"


def processes(stuck_after_s: float = _STUCK_AFTER_S) -> Result:
    """Say whether there are old zombies, or old processes that hang in the kernel."""
    hanging = _in_state(psutil.STATUS_DISK_SLEEP, stuck_after_s)
    for _ in range(_LOOKS - 1):
        if not hanging:
            break
        time.sleep(_BETWEEN_S)  # Whoever is there in every look does not just read a file.
        hanging &= _in_state(psutil.STATUS_DISK_SLEEP, stuck_after_s)
    if hanging:
        return CRITICAL, f"hanging in the kernel: {_names(hanging)}"
    zombies = _in_state(psutil.STATUS_ZOMBIE, stuck_after_s)
    if zombies:
        return WARNING, f"zombies: {_names(zombies)}"
    return OK, "no process is stuck"


def _in_state(state: str, least_s: float) -> set[tuple[int, str]]:
    now_s = time.time()
    return {
        (each.info["pid"], each.info["name"] or "?")
        for each in psutil.process_iter(["pid", "name", "status", "create_time"])
        if each.info["status"] == state and now_s - (each.info["create_time"] or now_s) >= least_s
    }


def _names(found: set[tuple[int, str]]) -> str:
    return ", ".join(f"{name} ({pid})" for pid, name in sorted(found)[:5])


def _above(value: float, warn: float, critical: float) -> int:
    return CRITICAL if value >= critical else WARNING if value >= warn else OK


def main(arguments: list[str] | None = None) -> int:
    """Run one check by its name."""
    parser = argparse.ArgumentParser(prog="holdfast.guard.nodechecks", description=__doc__)
    checks = parser.add_subparsers(dest="check", required=True)
    for name, flags in _FLAGS.items():
        made = checks.add_parser(name)
        for flag, kind in flags.items():
            made.add_argument(f"--{flag.replace('_', '-')}", dest=flag, type=kind, required=kind is Path)
    given = {key: value for key, value in vars(parser.parse_args(arguments)).items() if value is not None}
    code, said = _CHECKS[given.pop("check")](**given)
    sys.stdout.write(f"{said}\n")
    return code


_CHECKS: dict[str, Callable[..., Result]] = {
    "disk": disk,
    "mount": mount,
    "clock": clock,
    "memory": memory,
    "processes": processes,
}
_FLAGS: dict[str, dict[str, type]] = {
    "disk": {"path": Path, "warn": float, "critical": float},
    "mount": {"path": Path},
    "clock": {"warn_ms": float, "critical_ms": float},
    "memory": {"least_gb": float, "warn": float, "critical": float},
    "processes": {"stuck_after_s": float},
}

if __name__ == "__main__":
    sys.exit(main())
