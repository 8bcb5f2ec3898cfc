"""How a newcomer gets in: it takes in the state of its stage and every update since, and enters beside it.

The others train on meanwhile. When the newcomer has caught up it says so, all meet between two steps, and it
is at the same version as they are, with the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.errors import InputError
from holdfast.job.feed import DonorLostError, Intake, Parcel
from holdfast.job.member import HubMember
from holdfast.job.state import State
from holdfast.job.sums import Reduced
from holdfast.membership import Regroup, Reported

CAUGHT_UP = 1
"""Parcels that may still wait at the donor."""


class Entry(msgspec.Struct, kw_only=True):
    """What it took to get in."""

    size_bytes: int = 0
    updates: int = 0
    seconds: float = 0.0
    """From asking for a donor until the meeting."""


class Entering:
    """One newcomer on its way in."""

    def __init__(self, rank: int, member: HubMember, state: State, *, token: str) -> None:
        self.entry = Entry()
        self.take_over: Callable[[dict[str, Any], int], None] = lambda content, version: None
        """Called with a donor's state and its version, before any update."""
        self.cap: Callable[[], int | None] = lambda: None
        """Returns how many micro-batches fit into this worker's memory, once the state is there."""
        self._rank = rank
        self._member = member
        self._state = state
        self._token = token

    def enter(self) -> Regroup:
        """Return the generation that this worker is a member of; raises if there is none to come."""
        began_s = time.monotonic()
        intake = Intake(self._member.host, self._token)
        try:
            while (version := self._fed(intake)) is None:
                self._member.check()
            self.entry.size_bytes = intake.received_bytes
        finally:
            intake.close()
        regroup = self._member.decided(-1)
        # An earlier one may have let it in before it lost its donor.
        while regroup.agreement.version != version:
            regroup = self._member.decided(regroup.generation)
        self.entry.seconds = time.monotonic() - began_s
        return regroup

    def _fed(self, intake: Intake) -> int | None:
        """Take in what a donor sends, and return the version at its end; None: another donor is needed."""
        self._member.hunger(intake.port)
        is_told, self.entry.updates = False, 0
        try:
            for parcel, content in intake.parcels():
                if parcel.kind == "end":
                    return parcel.version
                self._take(parcel, content)
                if not is_told and parcel.waiting <= CAUGHT_UP:
                    is_told = True
                    self._member.report(
                        Reported(
                            rank=self._rank, generation=-1, standing=self._state.standing, cap=self.cap()
                        )
                    )
        except DonorLostError:
            return None
        return None

    def _take(self, parcel: Parcel, content: Any) -> None:
        if parcel.kind == "refused":
            raise InputError(f"the state of this stage cannot travel: {parcel.words}")
        if parcel.kind == "state":
            self.take_over(content, parcel.version)
            return
        reduced = Reduced(content["gradients"])
        reduced.magnitudes = content["magnitudes"]
        self._state.replay(reduced, content["scale"])
        self.entry.updates += 1
        assert self._state.version == parcel.version
