"""The schedules that the workers of a node follow, read once per generation."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.detect.hang import Makers
from holdfast.errors import InputError
from holdfast.job.status import schedule_path
from holdfast.plan.ops import Schedule, parse_schedule
from holdfast.plan.timing import made_by, needed_by
from holdfast.telemetry import Status


class _Known(msgspec.Struct, frozen=True):
    inode: int
    schedule: Schedule | None
    makers: Makers


class Schedules:
    """What is known of each generation's schedule."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[int, _Known] = {}

    def refresh(self) -> None:
        """Forget schedules that are gone or were replaced: a new attempt counts its generations anew."""
        self._known = {
            generation: known
            for generation, known in self._known.items()
            if known.inode == self._inode(generation)
        }

    def makers(self, generation: int) -> Makers:
        """Return who makes the input of every operation; nothing where the schedule is not known."""
        return self._find(generation).makers

    def op(self, status: Status) -> str | None:
        """Return the operation that a worker is at, None where there is none."""
        schedule = self._find(status.generation).schedule
        if schedule is None or status.seat >= len(schedule.orders):
            return None
        order = schedule.orders[status.seat]
        return str(order[status.op]) if 0 <= status.op < len(order) else None

    def _find(self, generation: int) -> _Known:
        if generation not in self._known:
            self._known[generation] = self._read(generation)
        return self._known[generation]

    def _read(self, generation: int) -> _Known:
        inode = self._inode(generation)
        try:
            schedule = parse_schedule(schedule_path(self._folder, generation).read_text())
        except (OSError, UnicodeDecodeError, InputError):
            return _Known(inode, None, {})
        return _Known(inode, schedule, find_makers(schedule))

    def _inode(self, generation: int) -> int:
        try:
            return schedule_path(self._folder, generation).stat().st_ino
        except OSError:
            return -1


def find_makers(schedule: Schedule) -> Makers:
    """Return, for every operation that needs an input, the one that makes it, as place and index each."""
    places = [
        (op, (seat, index)) for seat, order in enumerate(schedule.orders) for index, op in enumerate(order)
    ]
    makers = {made: place for op, place in places if (made := made_by(op, schedule.pp)) is not None}
    return {
        place: makers[need] for op, place in places if (need := needed_by(op)) is not None and need in makers
    }
