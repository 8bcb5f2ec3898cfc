"""What every rank of a small training job calls, in order: tensor, pipeline and data parallel.

Nothing here knows of faults.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Layout:
    """How many ranks there are in each direction."""

    dp: int
    tp: int
    pp: int

    @property
    def world(self) -> int:
        """Return the number of ranks."""
        return self.dp * self.tp * self.pp

    def rank(self, d: int, t: int, p: int) -> int:
        """Return the rank at a position; neighbours in tensor parallelism are neighbours in rank."""
        return (p * self.dp + d) * self.tp + t


@dataclass(frozen=True)
class Call:
    """One operation, equal on all ranks that take part in it."""

    group: int
    number: int
    """Of the collective in its group; or of the message between its ends."""
    kind: str
    ranks: tuple[int, ...]
    """Who takes part; for a message its sender and its receiver."""
    is_message: bool = False
    holds_up: bool = True
    """The device does nothing else until it is over; never true for a sender."""
    is_barrier: bool = False
    """The device waits for everything before it."""


@dataclass
class Program:
    """The calls of all ranks, and the groups they belong to."""

    layout: Layout
    groups: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    calls: list[list[Call]] = field(default_factory=list)
    _numbers: dict[tuple[int, ...], int] = field(default_factory=dict)

    def group(self, label: str, ranks: list[int]) -> int:
        """Add a group and return its number."""
        self.groups.append((label, tuple(ranks)))
        return len(self.groups) - 1

    def collective(self, group: int, kind: str, *, holds_up: bool = True, is_barrier: bool = False) -> None:
        """Let all ranks of a group call a collective."""
        ranks = self.groups[group][1]
        call = Call(group, self._next((group,)), kind, ranks, holds_up=holds_up, is_barrier=is_barrier)
        for rank in ranks:
            self.calls[rank].append(call)

    def receive(self, group: int, src: int, dst: int) -> None:
        """Let a rank receive the next message."""
        self.calls[dst].append(self._message(group, src, dst, "recv"))

    def send(self, group: int, src: int, dst: int) -> None:
        """Let a rank send the next message."""
        self.calls[src].append(self._message(group, src, dst, "send"))

    def _message(self, group: int, src: int, dst: int, verb: str) -> Call:
        number = self._next((group, src, dst, verb == "send"))
        return Call(group, number, "message", (src, dst), is_message=True)

    def _next(self, key: tuple[int, ...]) -> int:
        self._numbers[key] = self._numbers.get(key, 0) + 1
        return self._numbers[key]


class _Groups:
    """The groups of a layout, in the order in which they are made."""

    def __init__(self, program: Program) -> None:
        layout, rank = program.layout, program.layout.rank
        dps, tps, pps = range(layout.dp), range(layout.tp), range(layout.pp)
        self.world = program.group("default_pg", list(range(layout.world)))
        self.dp = {(t, p): program.group("dp", [rank(d, t, p) for d in dps]) for t in tps for p in pps}
        self.tp = {(d, p): program.group("tp", [rank(d, t, p) for t in tps]) for d in dps for p in pps}
        self.pp = {(d, t): program.group("pp", [rank(d, t, p) for p in pps]) for d in dps for t in tps}


def write_program(layout: Layout, rng: random.Random, length: int = 100) -> Program:
    """Return a program of so many calls per rank, or more; which ones, and what overlaps, is drawn."""
    program = Program(layout, calls=[[] for _ in range(layout.world)])
    groups = _Groups(program)
    microbatches, overlaps = rng.randint(2, 4), rng.random() < 0.5
    layers = rng.choice(
        [["all_reduce"], ["_all_gather_base", "_reduce_scatter_base"], ["all_to_all", "all_reduce"]]
    )
    warm_up = rng.choice([microbatches, 1])  # All forwards first, or one forward and one backward in turn.
    while min(len(calls) for calls in program.calls) < length:
        for p in range(layout.pp):
            for forward in _order(microbatches, max(1, min(warm_up, microbatches))):
                _stage(program, groups, p, layers, forward=forward)
        for group in groups.dp.values():
            program.collective(group, "_reduce_scatter_base", holds_up=not overlaps)
        program.collective(groups.world, "all_reduce", is_barrier=True)
        for group in groups.dp.values():
            program.collective(group, "_all_gather_base")
    return program


def _order(microbatches: int, ahead: int) -> list[bool]:
    """Return forwards and backwards of a stage; a stage is never less ahead than the next one needs."""
    steady = [turn for _ in range(microbatches - ahead) for turn in (True, False)]
    return [True] * ahead + [not turn for turn in steady] + [False] * ahead


def _stage(program: Program, groups: _Groups, p: int, layers: list[str], *, forward: bool) -> None:
    layout = program.layout
    before, after = (p - 1, p + 1) if forward else (p + 1, p - 1)
    for d in range(layout.dp):
        positions = [(groups.pp[d, t], layout.rank(d, t, p), t) for t in range(layout.tp)]
        for group, rank, t in positions:
            if 0 <= before < layout.pp:
                program.receive(group, layout.rank(d, t, before), rank)
        for kind in layers if layout.tp > 1 else ():
            program.collective(groups.tp[d, p], kind)
        for group, rank, t in positions:
            if 0 <= after < layout.pp:
                program.send(group, rank, layout.rank(d, t, after))
