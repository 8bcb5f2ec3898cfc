"""Which links to test at the same time: a few passes over a ring or a tree, in each a rank has one partner.

Ranks in, passes of directed pairs (who sends, who receives) out. The number of passes does not grow with the
number of ranks (GREYHOUND, USENIX ATC 2025, section on validation).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

Pair = tuple[int, int]
"""Who sends, who receives."""


def ring_passes(ranks: Sequence[int]) -> list[list[Pair]]:
    """Return the links of a ring in two passes, in three where the number of ranks is odd."""
    _check(ranks)
    if len(ranks) < 2:
        return []
    links = list(zip(ranks, [*ranks[1:], ranks[0]], strict=True))
    if len(links) % 2 == 0:
        return [links[0::2], links[1::2]]
    # The link that closes an odd ring touches both of the others' passes.
    return [links[0:-1:2], links[1:-1:2], links[-1:]]


def tree_passes(ranks: Sequence[int]) -> list[list[Pair]]:
    """Return the links of a binary tree, child to parent, in four passes; those of a small tree are empty.

    The first rank is the root, and the children of place i are at 2i + 1 and 2i + 2. Left children of even
    levels come first, then right ones, then the same of odd levels: no parent is a child in the same pass.
    """
    _check(ranks)
    passes: list[list[Pair]] = [[], [], [], []]
    for place in range(1, len(ranks)):
        level = (place + 1).bit_length() - 1
        is_right = place % 2 == 0
        passes[2 * (level % 2) + is_right].append((ranks[place], ranks[(place - 1) // 2]))
    return passes


def _check(ranks: Sequence[int]) -> None:
    twice = sorted(rank for rank, count in Counter(ranks).items() if count > 1)
    if twice:
        raise ValueError(f"ranks has {twice[0]} more than once, expected every rank once")
