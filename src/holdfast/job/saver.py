"""Checkpoints beside the training: each stage's part is written by a thread, and whole ones get their name.

When it is time, one worker of each stage copies its state between two steps and writes it; the others go on.
What has been written, and when the next one is due, is told with the tally of every step, so all workers know
the same of it, and nobody waits. A part that cannot be written ends that checkpoint and nothing else.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec

from holdfast.job import checkpoint
from holdfast.job.cadence import Cadence
from holdfast.job.checkpoint import Description
from holdfast.job.reached import Reached

KEPT = 2
"""Whole checkpoints that stay; one before the last, should that turn out to be broken."""
_AHEAD = 3
"""Versions from that at which a due date is decided to the first that it can be: all have heard it then."""


class Saver:
    """One worker's part in the checkpoints of a run; all methods are called by the thread that trains."""

    def __init__(self, folder: Path, cadence: Cadence, describe: Callable[[int], Description]) -> None:
        self._folder = folder
        self._cadence = cadence
        self._describe = describe
        self._reached: Reached | None = None
        self._due = 0
        """The version of the next one; 0: not heard yet."""
        self._begun: int | None = None
        """The version that is being written, by all stages."""
        self._begun_s = 0.0
        self._written = 0
        """The version of the last part that this worker has written; negative: that it could not write."""
        self._named = 0
        """The version of the last checkpoint that this worker has given its name."""

    @property
    def written(self) -> int:
        """What to tell the others; a negative number says that there will be nothing."""
        return self._written

    def due(self, version: int) -> int:
        """Return what the leader tells the others: the version of the next checkpoint."""
        if self._due <= version and self._begun is None:
            return max(self._cadence.due_after(version), version + _AHEAD)
        return self._due

    def is_due(self, version: int) -> bool:
        """Say whether a checkpoint begins at this version; the same on all workers."""
        return version == self._due and self._begun is None

    def begin(self, version: int, stage: int, content: Callable[[], dict[str, Any]] | None) -> None:
        """Begin a checkpoint; without content it is for a peer to write this stage."""
        self._begun, self._begun_s = version, time.time()
        if content is not None:
            began_s = time.monotonic()
            work = (version, stage, content())
            self._cadence.note_cost(time.monotonic() - began_s)
            Thread(target=self._write, args=work, name="holdfast-save", daemon=True).start()

    def note_step(self, version: int, *, is_leader: bool) -> None:
        """Take in that a version is final."""
        self._cadence.note_step(time.monotonic())
        if is_leader:
            self._reached = self._reached or Reached(self._folder)
            self._reached.note(version)

    def hear(self, due: int, told: Sequence[int], *, is_leader: bool) -> None:
        """Take in what all stages have told: when all parts are there, one worker names the whole."""
        self._due = due
        version = self._begun
        if version is None or not all(abs(each) == version for each in told):
            return
        self._begun = None
        if is_leader and all(each == version for each in told) and version > self._named:
            self._named = version
            Thread(
                target=self._name, args=(version, self._begun_s), name="holdfast-save", daemon=True
            ).start()

    def forget(self) -> None:
        """Give up what has been begun: who was to write it may be gone."""
        self._begun = None

    # --- in a thread --------------------------------------------------------------------------

    def _write(self, version: int, stage: int, content: dict[str, Any]) -> None:
        began_s = time.monotonic()
        failure = checkpoint.failure_of(
            lambda: checkpoint.write_stage(step_folder(self._folder, version), stage, content)
        )
        if failure is not None:
            sys.stderr.write(f"holdfast: the checkpoint of step {version} was not written: {failure}\n")
        self._cadence.note_written(time.monotonic() - began_s)
        self._written = version if failure is None else -version

    def _name(self, version: int, at_s: float) -> None:
        description = msgspec.structs.replace(self._describe(version), at_s=at_s)
        failure = checkpoint.failure_of(
            lambda: checkpoint.finish(step_folder(self._folder, version), description)
        )
        if failure is not None:
            sys.stderr.write(f"holdfast: the checkpoint of step {version} was not finished: {failure}\n")
            return
        for old in whole_steps(self._folder)[KEPT:]:
            shutil.rmtree(step_folder(self._folder, old), ignore_errors=True)
        for draft in self._folder.glob(".step-*.partial"):
            if draft.name < checkpoint.draft_of(step_folder(self._folder, version)).name:
                shutil.rmtree(draft, ignore_errors=True)


def step_folder(folder: Path, version: int) -> Path:
    """Return where the checkpoint of a step lies."""
    return folder / f"step-{version:09d}"


def whole_steps(folder: Path) -> list[int]:
    """Return the steps of all checkpoints that are whole, the newest first."""
    found = []
    for each in folder.glob("step-*"):
        number = each.name.removeprefix("step-")
        if number.isdecimal() and (each / checkpoint.DESCRIPTION).exists():
            found.append(int(number))
    return sorted(found, reverse=True)
