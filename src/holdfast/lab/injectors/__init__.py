"""Faults from outside the worker: one mechanism per file, each an ``apply`` and a ``relieve``.

Relief may be called twice, and nothing is left behind: no cgroup, process, namespace or stopped worker.
"""

from __future__ import annotations

from typing import Protocol


class Injector(Protocol):
    """One fault of one mechanism, aimed at one target."""

    via: str
    """Name of the mechanism."""

    def apply(self) -> None:
        """Begin to hurt the target."""

    def relieve(self) -> None:
        """Stop hurting it and clean up; harmless when nothing was applied."""
