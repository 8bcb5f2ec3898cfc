"""How a guard asks the workers of its node for a probe: one word in shared memory, and a file beside it.

The word counts the orders. A worker looks at it after every step, which costs one load; only when it has
changed does the worker read the order, a JSON file that is replaced by rename. Whoever comes first makes the
page, and it stays the same one for as long as the folder lives. Nothing here imports torch.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from holdfast.job.files import replace_file

MAGIC = int.from_bytes(b"HFORDER1", "little")
SIZE_BYTES = 16
"""magic, count of orders."""
COUNT = 1
LONGEST_S = 60.0
MOST_BYTES = 1 << 30

ProbeKind = Literal["gemm", "links"]
Outcome = Literal["done", "no_go", "no_answer"]


class ProbeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to test, who takes part, and after which step."""

    id: str
    """Of this order alone in the whole run; also part of a file's name."""
    at_step: int
    """All ranks stop after this step; who learns of it later calls it off."""
    ranks: list[int]
    kinds: list[ProbeKind]
    passes: list[list[tuple[int, int]]] = []
    """Links to test, who sends and who receives; the pairs of a pass at the same time."""
    timeout_s: float = 2.0
    """Who has not got through by then goes on with the training."""
    size_bytes: int = 4 << 20
    """Of a message."""
    repeats: int = 10
    """How often each test is timed, after a first time that does not count."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self.id):
            raise ValueError(f"id is {self.id!r}, expected 1 to 64 letters, digits, '_' or '-'")
        if len(set(self.ranks)) != len(self.ranks) or min(self.ranks, default=-1) < 0:
            raise ValueError(f"ranks is {self.ranks}, expected some ranks, each once")
        if not 0 < self.timeout_s <= LONGEST_S:
            raise ValueError(f"timeout_s is {self.timeout_s}, expected more than 0 and at most {LONGEST_S}")
        if not 1 <= self.size_bytes <= MOST_BYTES:
            raise ValueError(f"size_bytes is {self.size_bytes}, expected 1 to {MOST_BYTES}")
        if not 1 <= self.repeats <= 100:
            raise ValueError(f"repeats is {self.repeats}, expected 1 to 100")
        for number, pairs in enumerate(self.passes):
            busy = list(chain.from_iterable(pairs))
            if len(set(busy)) != len(busy) or not set(busy) <= set(self.ranks):
                raise ValueError(f"pass {number} is {pairs}, expected ranks of {self.ranks}, each once")


_PROBE_ORDER = msgspec.json.Decoder(ProbeOrder)


class LinkTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long messages took from one rank to another, as the rank that tells it saw them."""

    source: int
    target: int
    times_s: list[float]


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank has to say after an order; what was timed before it broke off is there as well."""

    rank: int
    order: str
    """Its id."""
    outcome: Outcome
    gemm_s: list[float] = []
    links: list[LinkTime] = []
    """Those that the rank was an end of."""
    error: str | None = None
    """Why it is not done."""


_PROBE_RESULT = msgspec.json.Decoder(ProbeResult)


class Due(NamedTuple):
    """An order whose step has come, or is over."""

    order: ProbeOrder
    is_late: bool


def page_path(folder: Path) -> Path:
    """Return where the count of orders lies."""
    return folder / "orders.page"


def order_path(folder: Path) -> Path:
    """Return where the newest order lies."""
    return folder / "order.json"


def result_path(folder: Path, order: str, rank: int) -> Path:
    """Return where a rank lays its result."""
    return folder / f"probe_{order}_{rank}.json"


class OrderWriter:
    """The asking end, in a guard; one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._words = _open_page(page_path(folder))

    def write(self, order: ProbeOrder) -> None:
        """Give an order, which replaces the one before where that has not been carried out."""
        replace_file(order_path(self._folder), msgspec.json.encode(order))
        self._words[COUNT] += 1  # After the file: who sees the count finds the order.


class OrderReader:
    """The asked end, in the training process; where there is no page it hears nothing."""

    def __init__(self, folder: Path, *, rank: int) -> None:
        self._path = order_path(folder)
        self._rank = rank
        self.errors = 0
        """Orders that could not be read."""
        try:
            self._words = _open_page(page_path(folder))
        except (OSError, ValueError):
            self.errors += 1
            self._words = memoryview(bytearray(SIZE_BYTES)).cast("Q")
        # What was asked before this process began was asked of another.
        self._seen = self._words[COUNT]
        self._waiting: ProbeOrder | None = None
        self._last_id: str | None = None

    def due(self, step: int) -> Due | None:
        """Return the order to carry out now that a step is over; each order once."""
        if self._words[COUNT] == self._seen and self._waiting is None:
            return None
        return self._look(step)

    def _look(self, step: int) -> Due | None:
        count = self._words[COUNT]
        if count != self._seen:
            self._seen = count
            self._read()
        order = self._waiting
        if order is None or step < order.at_step:
            return None
        self._waiting = None
        return Due(order, is_late=step > order.at_step)

    def _read(self) -> None:
        try:
            order = _PROBE_ORDER.decode(self._path.read_bytes())
        except (OSError, msgspec.DecodeError):
            self.errors += 1
            return
        # The file may be ahead of the count, and is then found a second time.
        if order.id != self._last_id:
            self._last_id = order.id
            self._waiting = order if self._rank in order.ranks else None


def write_result(folder: Path, result: ProbeResult) -> None:
    """Lay a result where the guard finds it, whole or not at all."""
    replace_file(result_path(folder, result.order, result.rank), msgspec.json.encode(result))


def read_results(folder: Path, order: str, ranks: Sequence[int]) -> list[ProbeResult]:
    """Return what these ranks have said so far about an order."""
    found = []
    for rank in ranks:
        try:
            data = result_path(folder, order, rank).read_bytes()
            found.append(_PROBE_RESULT.decode(data))
        except (OSError, msgspec.DecodeError):  # Not there yet, or not one of ours.
            continue
    return found


def _open_page(path: Path) -> memoryview[int]:
    # Neither replaced nor cut: all who open it, at whatever time, look at the same memory.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Reserve the block now: writing to a hole of a full file system would end the process (SIGBUS).
        os.posix_fallocate(fd, 0, SIZE_BYTES)
        words = memoryview(mmap.mmap(fd, SIZE_BYTES)).cast("Q")
    finally:
        os.close(fd)
    if words[0] not in (0, MAGIC):
        raise ValueError(f"{path} is not a page of orders of this version")
    words[0] = MAGIC
    return words
