"""A schedule is text: ``2F1.4`` is the forward of micro-batch 4 of pipeline 1 at stage 2.

Because it parses and prints, the same value can be validated, timed, compared, drawn and executed. The
letters are those of ``torch.distributed.pipelining``: F forward, I backward for the input, W backward for the
weights, B both at once.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from holdfast.errors import InputError
from holdfast.plan.problem import Worker

KINDS = "FIWB"
KIND_PARTS = {"F": "F", "I": "I", "W": "W", "B": "IW"}
"""What each kind does."""
_OP = re.compile(r"(\d{1,9})([FIWB])(\d{1,9})\.(\d{1,9})")
_HEAD = re.compile(r"dp (\d{1,9}) pp (\d{1,9}) microbatches (\d{1,9})")
_LINE = re.compile(r"(\d{1,9})\.(\d{1,9}):(.*)")


class Op(NamedTuple):
    """One piece of work; which worker does it is told by the line of the schedule that it stands in."""

    kind: str
    pipeline: int
    """Where the micro-batch belongs, also when a worker of another pipeline does the work."""
    microbatch: int
    stage: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.pipeline}.{self.microbatch}"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Who does what in which order: ``orders[pipeline * pp + stage]`` is the list of one worker."""

    dp: int
    pp: int
    microbatches: int
    orders: tuple[tuple[Op, ...], ...]

    def order(self, worker: Worker) -> tuple[Op, ...]:
        """What one worker does, first to last; nothing if it is dead."""
        return self.orders[worker.pipeline * self.pp + worker.stage]

    @property
    def workers(self) -> list[Worker]:
        """Every worker, in the order of ``orders``."""
        return [Worker(pipeline, stage) for pipeline in range(self.dp) for stage in range(self.pp)]

    def __str__(self) -> str:
        head = f"dp {self.dp} pp {self.pp} microbatches {self.microbatches}"
        lines = [
            f"{worker}: {' '.join(map(str, order)) or '-'}"
            for worker, order in zip(self.workers, self.orders, strict=True)
        ]
        return "\n".join([head, *lines]) + "\n"


def parse_op(text: str) -> Op:
    """Return the operation that a word like ``2F1.4`` stands for."""
    match = _OP.fullmatch(text)
    if match is None:
        raise InputError(
            f"{text!r} is no operation, expected STAGE, one of {KINDS}, PIPELINE.MICROBATCH: 2F1.4"
        )
    stage, kind, pipeline, microbatch = match.groups()
    return Op(kind, int(pipeline), int(microbatch), int(stage))


def parse_schedule(text: str) -> Schedule:
    """Return the schedule that was printed; whether it makes sense is for ``validate`` to say."""
    lines = [line for line in text.splitlines() if line.strip()]
    head = _HEAD.fullmatch(lines[0].strip()) if lines else None
    if head is None:
        raise InputError(f"line 1 is {lines[0] if lines else ''!r}, expected 'dp 3 pp 4 microbatches 6'")
    dp, pp, microbatches = map(int, head.groups())
    if min(dp, pp, microbatches) < 1:
        raise InputError(f"line 1 is {lines[0]!r}, expected numbers of 1 or more")
    if len(lines) - 1 != dp * pp:
        raise InputError(f"the schedule has {len(lines) - 1} workers, expected dp x pp = {dp * pp}")
    orders = tuple(
        _parse_line(line, Worker(*divmod(index, pp)), row)
        for index, (row, line) in enumerate(enumerate(lines[1:], start=2))
    )
    return Schedule(dp=dp, pp=pp, microbatches=microbatches, orders=orders)


def _parse_line(line: str, worker: Worker, row: int) -> tuple[Op, ...]:
    match = _LINE.fullmatch(line.strip())
    if match is None or Worker(int(match[1]), int(match[2])) != worker:
        raise InputError(f"line {row} is {line[:40]!r}, expected the operations of worker '{worker}: …'")
    words = match[3].split()
    try:
        return tuple(map(parse_op, [] if words == ["-"] else words))
    except InputError as error:
        raise InputError(f"line {row}, worker {worker}: {error}") from error
