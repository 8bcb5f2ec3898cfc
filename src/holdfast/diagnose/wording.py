"""Ranks and places in words."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from holdfast.diagnose.presence import Place, Standing


def name_ranks(ranks: Iterable[int]) -> str:
    """Return ranks as ``rank 3`` or ``ranks 0 to 7, 9 and 12``."""
    words: list[str] = []
    for first, last in _runs(sorted(set(ranks))):
        is_long = last > first + 1
        words += [f"{first} to {last}"] if is_long else [str(rank) for rank in range(first, last + 1)]
    if len(words) > 1:
        words = [*words[:-2], f"{words[-2]} and {words[-1]}"]
    is_one = len(words) == 1 and words[0].isdecimal()
    return f"rank{'' if is_one else 's'} {', '.join(words)}"


def _runs(ranks: list[int]) -> list[tuple[int, int]]:
    if not ranks:
        return []
    breaks = [(a, b) for a, b in pairwise(ranks) if b != a + 1]
    starts = [ranks[0], *(b for _, b in breaks)]
    return list(zip(starts, [*(a for a, _ in breaks), ranks[-1]], strict=True))


def name_place(standing: Standing, place: Place, kind: str | None = None) -> str:
    """Return a place as ``all_reduce 17 of group 3 (tensor parallel)``."""
    label = standing.labels.get(place.group, "")
    group = f"group {place.group}" + (f" ({label})" if label not in ("", "undefined") else "")
    if place.src >= 0:
        return f"the message from rank {place.src} to rank {place.dst} in {group}"
    return f"{kind or '/'.join(sorted(standing.kinds[place]))} {place.number} of {group}"
