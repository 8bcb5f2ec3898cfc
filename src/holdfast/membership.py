"""The vocabulary of who is in: what workers tell the controller, and what it answers.

A *rank* is a worker: the process that the launcher started under that number, or the one that replaced it. A
*place* is a pipeline and a stage, ``pipeline * pp + stage``; a worker holds the state of one. At the start
rank r has place r. One definition serves the controller's fold and the wire between workers and hub.
"""

from __future__ import annotations

import msgspec

from holdfast.commit import Agreement, Standing


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker brings with it: the job as its script describes it."""

    dp: int
    pp: int
    microbatches: int
    fault_free: str = "zero_bubble"
    """The schedule while nobody is slow or dead: ``1f1b`` or ``zero_bubble``."""
    costs: tuple[tuple[float, float, float], ...] = ()
    """Per stage: forward, input and weight, in one unit for all; none means 1, 1, 1 everywhere."""
    comm: float = 0.0


# --- events -----------------------------------------------------------------------------------


class Joined(msgspec.Struct, frozen=True, kw_only=True, tag="joined"):
    """A worker said who it is."""

    rank: int
    needs: Needs
    is_newcomer: bool = False
    """It comes to a job that is under way, and holds no state."""


class Hungry(msgspec.Struct, frozen=True, kw_only=True, tag="hungry"):
    """A newcomer that knows its place can take in state; said again, it has lost its donor."""

    rank: int
    address: str
    """Where a donor finds it, ``host:port``."""


class Reported(msgspec.Struct, frozen=True, kw_only=True, tag="reported"):
    """A worker has left its generation, and waits to be told where to go on."""

    rank: int
    generation: int
    """The one it was in; -1 at the start, and of a newcomer that has caught up."""
    standing: Standing
    speeds: dict[str, float] | None = None
    """What the script asks to plan with from now on, by worker; None: as before."""
    cap: int | None = None
    """How many micro-batches fit into the worker's memory; None: as before, at first any number."""
    swap: tuple[str, str] | None = None
    """Two places, ``pipeline.stage``, whose workers the script asks to exchange."""
    place: int | None = None
    """Whose state it holds; None: that of the place which it was given last."""
    lost: str = ""
    """What failed, in the words of whoever noticed it; empty where the script wanted a new generation."""


class Left(msgspec.Struct, frozen=True, kw_only=True, tag="left"):
    """A worker is gone: dead, or done with its work."""

    rank: int
    is_done: bool = False


class Advised(msgspec.Struct, frozen=True, kw_only=True, tag="advised"):
    """A planner found that members of a generation had better hold other places."""

    generation: int
    moves: list[tuple[int, int]]
    """From which place to which; one that is left may stay empty."""


class Arranged(msgspec.Struct, frozen=True, kw_only=True, tag="arranged"):
    """Whoever watches the job wants its work shared out in another way."""

    number: int
    """Of the wish, from 1; a later one replaces it."""
    speeds: dict[int, float] = {}
    """How fast ranks are, as measured; who is not named is healthy."""
    moves: list[tuple[int, int]] = []
    """From which place to which workers are to go."""
    without: list[int] = []
    """Ranks whose machines are to leave the job, which is then restarted."""
    holders: list[int] = []
    """The rank at each place then, for whoever takes over from the one who wished; none: each its own."""


Event = Joined | Hungry | Reported | Left | Advised | Arranged

# --- actions ----------------------------------------------------------------------------------


class Placed(msgspec.Struct, frozen=True, kw_only=True, tag="placed"):
    """A newcomer has been given a place; until then it is a spare."""

    rank: int
    place: int


class Feed(msgspec.Struct, frozen=True, kw_only=True, tag="feed"):
    """A donor is to send a newcomer the state of their stage, and every update from then on."""

    donor: int
    rank: int
    address: str


class Invite(msgspec.Struct, frozen=True, kw_only=True, tag="invite"):
    """Somebody waits to be let in: meet between two steps."""

    generation: int


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A worker takes a place of another stage, and gets that stage's state from a worker that holds it."""

    rank: int
    donor: int


class Regroup(msgspec.Struct, frozen=True, kw_only=True, tag="regroup"):
    """Go on as this generation."""

    generation: int
    members: list[int]
    """Places that have a worker, in order."""
    agreement: Agreement
    schedule: str
    holders: list[int] = []
    """The ranks of those workers, in the same order; none: everybody has the place of its number."""
    newcomers: list[int] = []
    """Places whose workers are new: they have caught up by what their donors sent, and enter now."""
    moves: list[Move] = []
    """Of members whose places are of another stage than before."""
    wish: int = 0
    """The last wish of whoever watches that this generation follows; 0: none."""

    def place_of(self, rank: int) -> int:
        """Return the place of a worker, -1 if it is not in."""
        if not self.holders:
            return rank if rank in self.members else -1
        return self.members[self.holders.index(rank)] if rank in self.holders else -1


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """Training cannot go on: for all, or for one who cannot take part."""

    reason: str
    rank: int | None = None
    """The one; None: all."""


Action = Placed | Feed | Invite | Regroup | Stop
