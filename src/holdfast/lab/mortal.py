"""Deaths by seed: a worker that kills itself when it reaches a named point, the same in every run.

``2:send:5:3`` kills rank 2 when it reaches the point ``send`` for the third time in step 5.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import get_args

import msgspec

from holdfast.errors import InputError
from holdfast.job.points import Point
from holdfast.plan.ops import Op

POINTS: tuple[Point, ...] = get_args(Point)


class Death(msgspec.Struct, frozen=True):
    """Who dies where; ``regroup`` is counted over the whole run, all others within their step."""

    rank: int
    point: str
    step: int
    count: int = 1

    def __str__(self) -> str:
        return f"{self.rank}:{self.point}:{self.step}:{self.count}"


def parse_death(text: str) -> Death:
    """Return the death that a word like ``2:send:5:3`` stands for."""
    parts = text.split(":")
    numbers = [parts[0], *parts[2:]] if len(parts) == 4 else ["?"]
    if not all(number.isdecimal() for number in numbers) or parts[1] not in POINTS:
        raise InputError(f"{text!r} is no death, expected RANK:POINT:STEP:COUNT, such as 2:send:5:3")
    return Death(int(parts[0]), parts[1], int(parts[2]), int(parts[3]))


class Mortal:
    """A listener that ends its own process at the points that are set for its rank."""

    def __init__(self, deaths: Sequence[Death], *, rank: int) -> None:
        self._deaths = [death for death in deaths if death.rank == rank]
        self._counts: dict[tuple[str, int], int] = {}

    def reach(self, point: Point, op: Op | None, step: int) -> None:
        """Die here, if this is the place."""
        key = (point, 0 if point == "regroup" else step)
        self._counts[key] = self._counts.get(key, 0) + 1
        for death in self._deaths:
            is_step = point == "regroup" or death.step == step
            if death.point == point and is_step and death.count == self._counts[key]:
                os.kill(os.getpid(), signal.SIGKILL)
