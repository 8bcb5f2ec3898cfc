"""What happens to files: bytes flip, pieces go missing or come twice, lines change places."""

from __future__ import annotations

import random
from collections.abc import Callable

Harm = Callable[[bytearray, random.Random], None]


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] = rng.randrange(256)


def _cut(data: bytearray, rng: random.Random) -> None:
    first = rng.randrange(len(data))
    del data[first : first + rng.randint(1, 60)]


def _repeat(data: bytearray, rng: random.Random) -> None:
    first = rng.randrange(len(data))
    piece = data[first : first + rng.randint(1, 60)]
    data[first:first] = piece * rng.randint(1, 3)


def _insert(data: bytearray, rng: random.Random) -> None:
    first = rng.randrange(len(data) + 1)
    words = (
        b"|",
        b"||",
        b"\n",
        b"\r\n",
        b'"',
        b",",
        b"\0",
        b"\xff",
        b"[",
        b"{",
        b"}",
        b"9" * 25,
        b"-1",
        b"nan",
    )
    data[first:first] = rng.choice(words)


def _swap(data: bytearray, rng: random.Random) -> None:
    lines = bytes(data).split(b"\n")
    rng.shuffle(lines)
    data[:] = b"\n".join(lines)


def _end(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


HARMS: tuple[Harm, ...] = (_flip, _cut, _repeat, _insert, _swap, _end)


def harm(data: bytes, seed: int) -> bytes:
    """Return a file after one to four mishaps."""
    rng = random.Random(seed)
    harmed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if harmed:
            rng.choice(HARMS)(harmed, rng)
    return bytes(harmed)
