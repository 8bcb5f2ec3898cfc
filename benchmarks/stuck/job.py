"""A job whose hosts run ahead of their devices, until some of its ranks stop.

Rank after rank, in random order, lets its host enqueue some calls and its device go on by some. A collective
is over when all its ranks have come; a message when it was sent and its receiver has come.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Literal

from stuck.program import Call, Program

Fault = Literal["host", "device", "lost", "dead"]
"""``lost``: the device is gone a little after the rank has seen the last operation end."""


class Rank:
    """One rank: what it has enqueued, where its device is, and what it has seen end."""

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls
        self.host = 0
        self.device = 0
        self.done: set[int] = set()
        self.seen_done: set[int] = set()
        self.is_host_stuck = False
        self.is_device_stuck = False
        self.is_blind = False
        self.turns_left: int | None = None
        """How many operations a lost device will still do."""

    def finish(self, index: int) -> None:
        """Note that a call is over."""
        self.done.add(index)
        if not self.is_blind:
            self.seen_done.add(index)
        if self.turns_left is not None:
            self.turns_left -= 1
            if self.turns_left <= 0:
                self.is_host_stuck = self.is_device_stuck = True


class Job:
    """All ranks of a program."""

    def __init__(self, program: Program, rng: random.Random, ahead: int) -> None:
        self.program = program
        self.ranks = [Rank(calls) for calls in program.calls]
        self.started: dict[Call, set[int]] = defaultdict(set)
        """Who has come to each call, with the device."""
        self._index = [{call: i for i, call in enumerate(calls)} for calls in program.calls]
        self._rng = rng
        self._ahead = ahead

    def run(self, until: float = 1.0) -> None:
        """Go on until a share of all calls is over, or until nothing moves."""
        enough = until * sum(len(rank.calls) for rank in self.ranks)
        while sum(len(rank.done) for rank in self.ranks) < enough:
            order = list(range(len(self.ranks)))
            self._rng.shuffle(order)
            moved = [self._turn(rank) for rank in order]
            if not any(moved):
                return

    def stop(self, rank: int, fault: Fault) -> None:
        """Break a rank."""
        broken = self.ranks[rank]
        broken.is_host_stuck |= fault in ("host", "dead")
        broken.is_device_stuck |= fault in ("device", "dead")
        if fault == "lost":
            broken.is_blind = True
            broken.turns_left = self._rng.randint(2, 20)

    def _turn(self, number: int) -> bool:
        moved = False
        for _ in range(self._rng.randint(0, 3)):
            moved |= self._enqueue(self.ranks[number])
        for _ in range(self._rng.randint(0, 2)):
            moved |= self._advance(number)
        # An unlucky draw must not look like a hang.
        return moved or self._enqueue(self.ranks[number]) or self._advance(number)

    def _enqueue(self, rank: Rank) -> bool:
        if rank.is_host_stuck or rank.host == len(rank.calls) or rank.host - rank.device >= self._ahead:
            return False
        rank.host += 1
        return True

    def _advance(self, number: int) -> bool:
        """Let a device come to its next call; return whether it did anything new."""
        rank = self.ranks[number]
        if rank.is_device_stuck or rank.device == rank.host:
            return False
        call = rank.calls[rank.device]
        if call.is_barrier and not all(index in rank.done for index in range(rank.device)):
            return False
        is_new = number not in self.started[call]
        self.started[call].add(number)
        if self.started[call] >= set(call.ranks):
            for each in call.ranks:
                self._finish(each, call)
        elif not call.holds_up or (call.is_message and number == call.ranks[0]):
            rank.device += 1
        return is_new

    def _finish(self, number: int, call: Call) -> None:
        rank, index = self.ranks[number], self._index[number][call]
        if index not in rank.done:
            rank.finish(index)
            if rank.device == index:
                rank.device += 1
