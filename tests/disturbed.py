"""Whether others had the machine while a test ran that needs it for itself.

The host of a virtual machine may give it to others at any moment, for minutes. The kernel counts that,
whatever a test does. A test that fails meanwhile tells nothing, and is run again; else what fails has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

MOST_STOLEN = 0.1
"""Of the time that somebody wanted to run."""
MOST_RUNS = 3
_IDLE, _WAITING, _STOLEN, _FIELDS = 3, 4, 7, 8

Result = TypeVar("Result")


class DisturbedError(Exception):
    """A test failed while others had the machine."""


class Counted(NamedTuple):
    """What the kernel has counted so far, over all processors."""

    stolen: int
    wanted: int

    @classmethod
    def parse(cls, stat: str) -> Counted:
        """Read the first line of ``/proc/stat``."""
        fields = [int(field) for field in stat.split("\n", 1)[0].split()[1 : 1 + _FIELDS]]
        return cls(stolen=fields[_STOLEN], wanted=sum(fields) - fields[_IDLE] - fields[_WAITING])

    @classmethod
    def now(cls) -> Counted:
        """Ask the kernel."""
        return cls.parse(Path("/proc/stat").read_text())

    def stolen_since(self, before: Counted) -> float:
        """Return the share of what was wanted that others had."""
        wanted = self.wanted - before.wanted
        return (self.stolen - before.stolen) / wanted if wanted else 0.0


def undisturbed(run: Callable[[], Result]) -> Result:
    """Run what several tests look at, again if others had the machine: a fixture is not rerun with a test."""
    for _ in range(MOST_RUNS):
        before = Counted.now()
        result = run()
        if Counted.now().stolen_since(before) <= MOST_STOLEN:
            break
    return result
