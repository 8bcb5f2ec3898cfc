"""Waiting for what happens soon: signals and exits take effect when the kernel gets to it."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def wait_for(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Return whether the condition came true in time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True


def becomes_stopped(process: psutil.Process) -> bool:
    """Return whether a process is stopped soon."""
    return wait_for(lambda: process.status() == psutil.STATUS_STOPPED)


def runs_again(process: psutil.Process) -> bool:
    """Return whether a process that was stopped is continued soon."""
    return wait_for(lambda: process.status() != psutil.STATUS_STOPPED)
