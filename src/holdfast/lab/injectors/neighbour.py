"""Busy neighbours: real processes that spin on the target's core, so that it gets its share and no more."""

from __future__ import annotations

import os
import subprocess

from holdfast.errors import InputError
from holdfast.lab.injectors import helpers


class BusyNeighbour:
    """``severity - 1`` rivals leave the target 1/severity of its core."""

    via = "process"

    def __init__(self, pid: int, severity: float) -> None:
        self._pid = pid
        self._rivals = int(severity) - 1
        self._helpers: list[subprocess.Popen[bytes]] = []

    def apply(self) -> None:
        """Start the rivals."""
        cores = sorted(os.sched_getaffinity(self._pid))
        if len(cores) != 1:
            raise InputError(
                f"busy_neighbour: process {self._pid} may run on cores {cores}, "
                "expected one core (pin the workers: demo jobs take --pin)"
            )
        self._helpers = [helpers.start("busy", cores[0]) for _ in range(self._rivals)]

    def relieve(self) -> None:
        """End the rivals."""
        while self._helpers:
            helpers.end(self._helpers.pop())
