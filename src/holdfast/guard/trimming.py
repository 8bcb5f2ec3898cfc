"""Makes a node's batches small enough to travel: without what tells the controller nothing new."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.detect.counters import ProcessCounters, Sample, ThreadTimes
from holdfast.guard.batches import Batch
from holdfast.telemetry import Channel, Lines

BUSY_SHARE = 0.005
"""Of the time: a thread that ran or waited for less since the look before has done nothing."""


class Trimmer:
    """Trims the batches of one node, in their order.

    A training process has dozens of threads, and few of them ever do anything. Those that never have are left
    out; the others are counted from the look before they began, so that the differences that
    ``detect.host`` makes of them come out as if they had been told all along.
    """

    def __init__(self, *, attempts_behind: int = 0) -> None:
        """Trim for a controller whose launcher has counted so many more attempts than ours."""
        self._behind = attempts_behind
        self._threads: dict[tuple[int, int], _Threads] = {}
        """By process: its number and when it started."""
        self._at_s: float | None = None
        self._told: set[tuple[str, int]] = set()
        """Answers that have been sent: question and rank."""
        self._channels: dict[int, list[Channel]] = {}
        """Those that have been sent, by rank."""

    def start_over(self) -> None:
        """Send everything again: to a controller that knows nothing yet."""
        self._told, self._channels = set(), {}

    def trim(self, batch: Batch) -> Batch:
        """Return the batch as it is to be sent."""
        trimmed = msgspec.structs.replace(
            batch,
            sample=self._trim_sample(batch.sample),
            channels=self._new_channels(batch.channels),
            answers=self._new_answers(batch.answers),
        )
        return _shift_attempts(trimmed, self._behind) if self._behind else trimmed

    def _trim_sample(self, sample: Sample) -> Sample:
        elapsed_s = sample.at_s - self._at_s if self._at_s is not None else 0.0
        self._at_s = sample.at_s
        found = {rank: self._trim_process(each, elapsed_s) for rank, each in sample.processes.items()}
        alive = {(each.pid, each.start_ticks) for each in sample.processes.values()}
        self._threads = {process: each for process, each in self._threads.items() if process in alive}
        return msgspec.structs.replace(sample, processes=found)

    def _trim_process(self, counters: ProcessCounters, elapsed_s: float) -> ProcessCounters:
        if counters.threads is None:
            return counters
        known = self._threads.setdefault((counters.pid, counters.start_ticks), _Threads(counters.pid))
        return msgspec.structs.replace(counters, threads=known.trim(counters.threads, elapsed_s))

    def _new_channels(self, channels: dict[int, list[Channel]]) -> dict[int, list[Channel]]:
        """Return those of ranks where anything is new: a group of all ranks names them all."""
        new = {rank: mine for rank, mine in channels.items() if mine != self._channels.get(rank)}
        self._channels = channels
        return new

    def _new_answers(self, answers: list[Lines]) -> list[Lines]:
        """Return those that were not sent yet; whatever was asked before is forgotten."""
        now = {(each.ask, each.rank) for each in answers}
        new = [each for each in answers if (each.ask, each.rank) not in self._told]
        self._told = now
        return new


class _Threads:
    """The threads of one process that have done something, and since when they are told."""

    def __init__(self, first: int) -> None:
        self._first = first
        """It is told from the start on: ``detect.host`` looks at it in particular."""
        self._last: Mapping[int, ThreadTimes] = {}
        self._since: dict[int, ThreadTimes] = {}

    def trim(self, threads: Mapping[int, ThreadTimes], elapsed_s: float) -> dict[int, ThreadTimes]:
        """Return what those threads did since they are told."""
        for number, now in threads.items():
            before = self._last.get(number, ThreadTimes())
            if number not in self._since and (number == self._first or _is_busy(before, now, elapsed_s)):
                self._since[number] = before
        since = self._since = {number: each for number, each in self._since.items() if number in threads}
        self._last = threads
        return {number: _beyond(since[number], now) for number, now in threads.items() if number in since}


def _is_busy(before: ThreadTimes, now: ThreadTimes, elapsed_s: float) -> bool:
    # In the first look nothing is known yet but what each did in its whole life, which is no matter.
    spent_s = now.ran_s - before.ran_s + now.waited_s - before.waited_s
    return elapsed_s > 0 and spent_s > BUSY_SHARE * elapsed_s


def _beyond(since: ThreadTimes, now: ThreadTimes) -> ThreadTimes:
    if now.ran_s < since.ran_s or now.waited_s < since.waited_s:  # Another has been given its number.
        return now
    return ThreadTimes(ran_s=now.ran_s - since.ran_s, waited_s=now.waited_s - since.waited_s)


def _shift_attempts(batch: Batch, behind: int) -> Batch:
    return msgspec.structs.replace(
        batch,
        steps=[msgspec.structs.replace(each, attempt=each.attempt + behind) for each in batch.steps],
        links=[msgspec.structs.replace(each, attempt=each.attempt + behind) for each in batch.links],
    )
