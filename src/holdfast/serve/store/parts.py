"""What summary rows add up to, in any order: per stretch of time for the whole run, and the latest per rank.

Step times are counted in bins that are 2 % wide, as DDSketch does (Masson, Rim and Lee, VLDB 2019), so the
median over ten thousand ranks is known without keeping them, and two parts add up exactly. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from holdfast.telemetry import Summary

WIDTHS_S = (1, 10, 60, 600)
"""Every row is counted in a bucket of each, so that a long time is as cheap to draw as a short one."""
LASTING_S = 60
"""Buckets of this width and wider ones stay from a run's beginning on; finer ones are removed."""
MOST_RANKS = 1 << 20
MOST_STEP = 1 << 53
MOST_S = 1e6
"""Longer steps are no steps; so no sum can be too large for the database."""

_BIN = math.log(1.02)


class Part(msgspec.Struct, frozen=True, array_like=True):
    """What was seen within one bucket."""

    step: int = 0
    slowest_us: int = -1
    slowest_rank: int = -1
    bins: dict[int, tuple[int, int]] = {}
    """How many step times were in each bin, and their sum in microseconds."""
    ranks: int = 0
    """One bit for each rank that finished a step."""

    def add(self, other: Part) -> Part:
        """Return both together."""
        bins = dict(self.bins)
        for number, (count, sum_us) in other.bins.items():
            had = bins.get(number, (0, 0))
            bins[number] = had[0] + count, had[1] + sum_us
        slowest = max(self, other, key=lambda part: (part.slowest_us, -part.slowest_rank))
        return Part(
            max(self.step, other.step),
            slowest.slowest_us,
            slowest.slowest_rank,
            bins,
            self.ranks | other.ranks,
        )

    @property
    def median_s(self) -> float:
        """Return the mean of the bin that the median is in."""
        half = (sum(count for count, _ in self.bins.values()) + 1) // 2
        for _, (count, sum_us) in sorted(self.bins.items()):
            half -= count
            if half <= 0:
                return sum_us / count / 1e6
        return 0.0


class Latest(msgspec.Struct, frozen=True, array_like=True):
    """A rank as its node saw it last."""

    at_us: int
    step: int
    step_us: int
    own_us: int | None


def part_of(row: Summary) -> Part:
    """Return what one row says."""
    times_us = {int(rank): round(time_s * 1e6) for rank, time_s in row.duration_s.items()}
    bins: dict[int, tuple[int, int]] = {}
    for time_us in times_us.values():
        number = int(math.log(max(time_us, 1)) / _BIN)
        count, sum_us = bins.get(number, (0, 0))
        bins[number] = count + 1, sum_us + time_us
    slowest_us, slowest = max(((time_us, -rank) for rank, time_us in times_us.items()), default=(-1, 1))
    ranks = 0
    for rank in times_us:
        ranks |= 1 << rank
    return Part(max(row.steps.values(), default=0), slowest_us, -slowest, bins, ranks)


def latest_of(row: Summary, at_us: int) -> dict[int, Latest]:
    """Return the ranks of one row that finished a step."""
    return {
        int(rank): Latest(
            at_us,
            row.steps.get(rank, 0),
            round(time_s * 1e6),
            round(row.own_s[rank] * 1e6) if rank in row.own_s else None,
        )
        for rank, time_s in row.duration_s.items()
    }


def newest(known: dict[int, Latest], more: dict[int, Latest]) -> dict[int, Latest]:
    """Return the newer one of each rank."""
    merged = dict(known)
    for rank, latest in more.items():
        if rank not in merged or merged[rank].at_us < latest.at_us:
            merged[rank] = latest
    return merged


def fault_of(row: Summary) -> str | None:
    """Return why a row cannot be counted, None where it can."""
    for rank in (*row.steps, *row.duration_s, *row.own_s):
        if not (rank.isascii() and rank.isdigit() and len(rank) <= 7 and int(rank) < MOST_RANKS):
            return f"rank is {rank[:40]!r}, expected a number below {MOST_RANKS}"
    for step in row.steps.values():
        if not 0 <= step < MOST_STEP:
            return f"step is {step}, expected 0 to {MOST_STEP - 1}"
    for time_s in (*row.duration_s.values(), *row.own_s.values()):
        if not 0 <= time_s <= MOST_S:  # Also what is no number.
            return f"step time is {time_s} s, expected 0 to {MOST_S:.0f} s"
    return None


# --- as bytes ---------------------------------------------------------------------------------


def pack(part: Part) -> bytes:
    """Return a part as the database keeps it."""
    return _ENCODER.encode(
        (part.step, part.slowest_us, part.slowest_rank, part.bins, _pack_ranks(part.ranks))
    )


def unpack(data: bytes) -> Part:
    """Undo ``pack``."""
    step, slowest_us, slowest_rank, bins, ranks = _PACKED.decode(data)
    return Part(step, slowest_us, slowest_rank, bins, _unpack_ranks(ranks))


def pack_latest(latest: dict[int, Latest]) -> bytes:
    """Return the latest of a node's ranks as the database keeps it."""
    return _ENCODER.encode(latest)


def unpack_latest(data: bytes) -> dict[int, Latest]:
    """Undo ``pack_latest``."""
    return _LATEST.decode(data)


_ENCODER = msgspec.msgpack.Encoder()
_PACKED = msgspec.msgpack.Decoder(tuple[int, int, int, dict[int, tuple[int, int]], list[int]])
_LATEST = msgspec.msgpack.Decoder(dict[int, Latest])


def _pack_ranks(ranks: int) -> list[int]:
    """Return the lengths of runs of bits, zeros first: ten thousand ranks in a row are two numbers."""
    text = bin(ranks)[:1:-1] if ranks else ""
    lengths, wanted, start = [], "1", 0
    while start < len(text):
        end = text.find(wanted, start)
        end = len(text) if end < 0 else end
        lengths.append(end - start)
        wanted, start = ("0" if wanted == "1" else "1"), end
    return lengths


def _unpack_ranks(lengths: Iterable[int]) -> int:
    ranks, start, bit = 0, 0, 0
    for length in lengths:
        ranks |= bit * (((1 << length) - 1) << start)
        start, bit = start + length, 1 - bit
    return ranks
