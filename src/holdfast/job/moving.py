"""How workers change places between two steps: each gets the state of its new stage from one who held it.

What a worker held before is kept until a step has been made by the new order of things. Should somebody die
before that, all go back to where they were, and nothing has to be sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from holdfast.job.engine import Engine
from holdfast.job.feed import DonorLostError, Feeding, Intake
from holdfast.job.mesh import PeerLostError
from holdfast.job.role import Recipe, Role
from holdfast.membership import Move, Regroup


class _Former(NamedTuple):
    """What a worker held before it moved."""

    place: int
    role: Role
    version: int


class Moving:
    """One worker's part in changes of places."""

    def __init__(self, engine: Engine, recipe: Recipe, *, host: str, token: str) -> None:
        self.take: Callable[[Role], None] = lambda role: None
        """Called with the role that is held from now on."""
        self.take_over: Callable[[dict[str, Any], int], None] = lambda content, version: None
        """Called with the state of the role and its version, after ``take``."""
        self._engine = engine
        self._recipe = recipe
        self._host = host
        self._token = token
        self._former: _Former | None = None
        self._intake: Intake | None = None

    def follow(self, regroup: Regroup) -> None:
        """Hold what a generation wants this worker to hold; ``PeerLostError`` if it has ended before that."""
        engine = self._engine
        former, self._former = self._former, None
        place = regroup.place_of(engine.rank)
        if former is not None and (place, regroup.agreement.version) == (former.place, former.version):
            self.take(former.role)
            return
        gifts = [move for move in regroup.moves if move.donor == engine.rank]
        is_moving = any(move.rank == engine.rank for move in regroup.moves)
        if gifts or is_moving:
            self._exchange(regroup, gifts, place if is_moving else None)

    def forget(self, version: int) -> None:
        """Take in that a version is final: what was before it is not needed any more."""
        if self._former is not None and version > self._former.version:
            self._former = None

    def wake(self) -> None:
        """End the wait for what somebody sends; from any thread."""
        intake = self._intake
        if intake is not None:
            intake.close()

    def _exchange(self, regroup: Regroup, gifts: Sequence[Move], place: int | None) -> None:
        engine, version = self._engine, regroup.agreement.version
        store = engine.store("moves")
        intake = self._intake = Intake(self._host, self._token) if place is not None else None
        try:
            if intake is not None:
                store.set(str(engine.rank), f"{self._host}:{intake.port}")
            for gift in gifts:
                feeding = Feeding(store.get(str(gift.rank)).decode(), self._token)
                feeding.give("state", version, engine.content())
                feeding.end(version)
            if intake is not None and place is not None:
                self._change(place, _first(intake), version)
        except DonorLostError as error:
            raise PeerLostError(f"who had the state of the new stage is gone: {error}") from None
        finally:
            self._intake = None
            if intake is not None:
                intake.close()

    def _change(self, place: int, content: dict[str, Any], version: int) -> None:
        engine = self._engine
        former = _Former(engine.place, engine.role, version)
        self.take(self._recipe.make(place % engine.needs.pp))
        engine.place = place
        self.take_over(content, version)
        self._former = former


def _first(intake: Intake) -> dict[str, Any]:
    """Return what the donor sends before its end."""
    found: dict[str, Any] | None = None
    for parcel, content in intake.parcels():
        if parcel.kind == "state":
            found = content
        elif parcel.kind == "refused":
            raise DonorLostError(parcel.words)
    if found is None:
        raise DonorLostError("it sent no state")
    return found
