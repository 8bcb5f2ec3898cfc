"""When the operations of a worker began and ended: kept in memory, written at the end, one file per rank.

A *timeline folder* holds ``rank_<R>.jsonl``. The first line is a ``Header``; every other line is a ``Span``,
in the order of execution. Times are of the node's monotonic clock, so those of one host can be compared.
A step that was computed again, after a failure, has several *passes*; the last one is what counts.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Container
from pathlib import Path

import msgspec

from holdfast.errors import InputError
from holdfast.job.points import Point
from holdfast.plan.ops import Op, parse_op

SCHEMA_VERSION = 1
MOST_SPANS = 100_000
"""Some 20 MB in memory; the oldest go first."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Whose timeline it is."""

    schema: int
    rank: int
    host: str
    """Only times of one host are of one clock."""
    dropped: int
    """Older operations that the buffer had no room for."""


_HEADER = msgspec.json.Decoder(Header)


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One operation as it was executed."""

    step: int
    number: int = msgspec.field(name="pass")
    """Counts the beginnings of a step on this rank; another begins when one is computed again."""
    op: str
    """As schedules have it: ``2F1.4``."""
    start_s: float
    end_s: float

    def __post_init__(self) -> None:
        if self.end_s < self.start_s:
            raise ValueError(f"end_s is {self.end_s}, expected start_s {self.start_s} or more")


_SPAN = msgspec.json.Decoder(Span)


class Timeline:
    """A listener that keeps the times of every operation of chosen steps, the newest if there are too many.

    Give it to the pipeline behind all others, so that what they do belongs to the operation.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        rank: int,
        steps: Container[int] | None = None,
        most: int = MOST_SPANS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dropped = 0
        self._path = Path(folder) / f"rank_{rank}.jsonl"
        self._rank = rank
        self._steps = steps
        """None: all."""
        self._clock = clock
        self._spans: deque[tuple[int, int, Op, float, float]] = deque(maxlen=most)
        self._pass = 0
        self._step = -1
        self._done: set[Op] = set()
        self._began: tuple[Op, float] | None = None
        with contextlib.suppress(OSError):  # Of an earlier run; a worker that is killed writes none.
            self._path.unlink()

    def reach(self, point: Point, op: Op | None, step: int) -> None:
        """Note the time, if an operation begins or ends here."""
        if op is None:
            if point == "regroup":
                self._step = -1
            return
        if point in ("forward", "input", "weight", "backward"):
            self._began = (op, self._clock())
        elif point == "done" and self._began is not None and self._began[0] == op:
            end_s = self._clock()
            if self._steps is None or step in self._steps:
                self._keep(step, op, self._began[1], end_s)
            self._began = None

    def write(self) -> bool:
        """Write the file and return whether that worked; what could not be written is not worth a failure."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_bytes(self._encode())
        except OSError:
            return False
        return True

    def _keep(self, step: int, op: Op, start_s: float, end_s: float) -> None:
        if step != self._step or op in self._done:  # Without a failure, too, a step may be computed again.
            self._pass, self._step = self._pass + 1, step
            self._done.clear()
        self._done.add(op)
        self.dropped += len(self._spans) == self._spans.maxlen
        self._spans.append((step, self._pass, op, start_s, end_s))

    def _encode(self) -> bytes:
        header = Header(
            schema=SCHEMA_VERSION, rank=self._rank, host=os.uname().nodename, dropped=self.dropped
        )
        rows = [
            Span(step=step, number=number, op=str(op), start_s=start_s, end_s=end_s)
            for step, number, op, start_s, end_s in self._spans
        ]
        return b"".join(msgspec.json.encode(each) + b"\n" for each in (header, *rows))


# --- reading ----------------------------------------------------------------------------------

Row = tuple[Op, float, float]
"""An operation, its start and its end in seconds."""


def read_timelines(folder: Path) -> dict[int, dict[int, list[Row]]]:
    """Return, by step and rank, what was executed in its last pass; operations in order."""
    paths = sorted(folder.glob("rank_*.jsonl"))
    if not paths:
        raise InputError(f"{folder}: no rank_*.jsonl in it, expected a folder of timelines")
    steps: dict[int, dict[int, list[Row]]] = {}
    hosts: dict[str, Path] = {}
    for path in paths:
        header, spans = _read(path)
        hosts.setdefault(header.host, path)
        last = {span.step: span.number for span in spans}
        for span in spans:
            if span.number == last[span.step]:
                rows = steps.setdefault(span.step, {}).setdefault(header.rank, [])
                rows.append((parse_op(span.op), span.start_s, span.end_s))
    if len(hosts) > 1:
        raise InputError(
            f"{folder}: timelines of hosts {', '.join(hosts)}, expected one: clocks of two differ"
        )
    return steps


def _read(path: Path) -> tuple[Header, list[Span]]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    row = 1
    try:
        header = _HEADER.decode(lines[0] if lines else b"")
        spans = []
        for row, line in enumerate(lines[1:], start=2):  # noqa: B007 - told when a line is wrong.
            spans.append(_SPAN.decode(line))
            parse_op(spans[-1].op)
    except (msgspec.MsgspecError, InputError) as error:
        raise InputError(f"{path}, line {row}: {error}") from error
    if header.schema != SCHEMA_VERSION:
        raise InputError(f"{path}, line 1: schema is {header.schema}, expected {SCHEMA_VERSION}")
    return header, spans
