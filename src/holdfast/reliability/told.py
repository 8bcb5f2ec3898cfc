"""Counting what a source has, and telling what of it could not be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import polars as pl

from holdfast.reliability.tables import MOST_TOLD, Broken, Reading


class Apply(Protocol):
    """A ``map``: calls a function with one item after the other, and returns what comes out, in order.

    Whoever has cores to spare gives one that works ahead.
    """

    def __call__(self, function: Callable[[_Item], _Out], items: Iterable[_Item], /) -> Iterable[_Out]:
        """Return what the function makes of each."""
        ...


_Item = TypeVar("_Item")
_Out = TypeVar("_Out")
_MOST_SHOWN = 40
ROW = "row"
"""Column of the line that a row began on, in every table that is on its way."""


class Tally:
    """What has been seen of one source so far."""

    def __init__(self, place: object) -> None:
        self.place = str(place)
        self.rows = 0
        self.broken = 0
        self.left_out = 0
        self._told: list[Broken] = []

    def tell(self, row: int, why: str) -> None:
        """Count one broken row, which is among ``rows`` already, and keep it if it is one of the first."""
        self.broken += 1
        if len(self._told) < MOST_TOLD:
            self._told.append(Broken(place=f"{self.place}, row {row}", why=why))

    def tell_all(self, bad: pl.DataFrame, explain: Callable[[dict[str, Any]], str]) -> None:
        """Count the rows of a table as broken; only those that are kept are explained."""
        kept = bad.head(max(0, MOST_TOLD - len(self._told)))
        for cells in kept.iter_rows(named=True):
            self.tell(cells[ROW], explain(cells))
        self.broken += bad.height - kept.height

    def add(self, part: Tally) -> None:
        """Count what was found in a part of the source."""
        self.rows += part.rows
        self.broken += part.broken
        self.left_out += part.left_out
        self._told += part._told[: MOST_TOLD - len(self._told)]

    def reading(self, table: pl.DataFrame) -> Reading:
        """Return all of it, with the table that came out."""
        return Reading(
            table=table, rows=self.rows, broken=self.broken, told=tuple(self._told), left_out=self.left_out
        )


Frame = Callable[[Tally], pl.DataFrame]
"""Reads a piece of a table, in any thread: counts its rows and tells the broken ones."""


def shown(text: object) -> str:
    """Return a cell as it is quoted in a message: short, and on one line."""
    words = str(text)
    return repr(words[:_MOST_SHOWN] + ("…" if len(words) > _MOST_SHOWN else ""))
