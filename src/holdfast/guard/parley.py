"""One session of the hub: its controller, what its members put for each other, and who waits for what.

A message in, letters out; no sockets here. A generation is *whole* until one of its members leaves the hub or
reports: from then on it can only be given up, and whoever waits for a value of it is told so.
"""

from __future__ import annotations

import msgspec

from holdfast.control import Controller, Plan
from holdfast.job.messages import Farewell, FromHub, Given, Put, Void, Want
from holdfast.membership import (
    Action,
    Advised,
    Arranged,
    Event,
    Feed,
    Hungry,
    Invite,
    Joined,
    Left,
    Placed,
    Regroup,
    Reported,
    Stop,
)
from holdfast.plan.problem import Problem


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from a message."""

    letters: list[tuple[int, FromHub]] = []
    """To whom, and what, in this order."""
    actions: list[Action] = []
    """What the controller has decided."""


class Parley:
    """The members of one session, and all that they have said."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.controller = Controller(plan)
        self.present: set[int] = set()
        """Ranks that are connected."""
        self._gone: set[int] = set()
        self._done: set[int] = set()
        self._stop: Stop | None = None
        self._is_whole = False
        self._values: dict[str, bytes] = {}
        self._wants: list[tuple[int, Want]] = []

    def admits(self, joined: Joined) -> bool:
        """Say whether the rank may join: everybody does so once, and who takes its part after it is gone."""
        return joined.rank not in self.present and (joined.is_newcomer or joined.rank not in self._gone)

    def join(self, joined: Joined) -> Answer:
        """Take in a member, or one who wants to be."""
        self.present.add(joined.rank)
        self._gone.discard(joined.rank)
        return self._over(joined.rank) if self._stop is not None or self._done else self._decide(joined)

    def advise(self, problem: Problem, moves: list[tuple[int, int]]) -> Answer:
        """Take in what a planner found for a problem; if that is still the one."""
        controller = self.controller
        if self._stop is not None or self._done or not controller.live or controller.problem() != problem:
            return Answer()
        return self._decide(Advised(generation=controller.generation, moves=moves))

    def arrange(self, arranged: Arranged) -> Answer:
        """Take in how whoever watches wants the work to be shared out."""
        if self._stop is not None or self._done or not self.controller.live:
            return Answer()
        return self._decide(arranged)

    def hunger(self, hungry: Hungry) -> Answer:
        """Take in that a newcomer waits for a donor; a member that does so has lost its own."""
        if self._stop is not None or self._done:
            return self._over(hungry.rank)
        is_member = hungry.rank in self.controller.live
        return self._decide(hungry, first=self._give_up(hungry.rank) if is_member else [])

    def report(self, reported: Reported) -> Answer:
        """Take in where a member stands; its generation has come to its end."""
        if self._stop is not None or self._done:
            return self._over(reported.rank)
        voids = self._give_up(reported.rank) if reported.generation == self.controller.generation else []
        return self._decide(reported, first=voids)

    def finish(self, rank: int) -> Answer:
        """Note that a member is done; when all are, everybody may close his connection."""
        self._done.add(rank)
        return self._farewell()

    def leave(self, rank: int, *, is_done: bool = False) -> Answer:
        """Let a member go; also a rank that never came, and never will."""
        if rank in self._gone:
            return Answer()
        self._gone.add(rank)
        self.present.discard(rank)
        self._wants = [(other, want) for other, want in self._wants if other != rank]
        if self._done:
            return self._farewell()
        return self._decide(Left(rank=rank, is_done=is_done), first=self._give_up(rank))

    def put(self, put: Put) -> Answer:
        """Keep a value, and answer those who waited for it."""
        if put.generation != self.controller.generation or not self._is_whole:
            return Answer()
        self._values[put.key] = put.value
        glad = [(rank, want) for rank, want in self._wants if want.key == put.key]
        self._wants = [(rank, want) for rank, want in self._wants if want.key != put.key]
        return Answer(letters=[(rank, self._given(want)) for rank, want in glad])

    def want(self, rank: int, want: Want) -> Answer:
        """Answer with the value, or that it will never be there, or later."""
        if want.generation != self.controller.generation or not self._is_whole:
            return Answer(letters=[(rank, Void(generation=want.generation))])
        if want.key in self._values:
            return Answer(letters=[(rank, self._given(want))])
        self._wants.append((rank, want))
        return Answer()

    def _over(self, rank: int) -> Answer:
        """Tell one who does not know it that there is nothing left to do."""
        # Those who are done met all others at the end, this one included: it lost them only after that.
        return Answer(letters=[(rank, self._stop if self._stop is not None else Farewell())])

    def _given(self, want: Want) -> Given:
        start = want.key[: want.key.rfind("/") + 1]
        values = {key: value for key, value in self._values.items() if key.startswith(start)}
        return Given(generation=want.generation, values=values)

    def _farewell(self) -> Answer:
        # Who has not become a member is not waited for: a spare would wait for ever.
        if not self.present <= self._done | self.controller.newcomers.keys():
            return Answer()
        return Answer(letters=[(rank, Farewell()) for rank in sorted(self.present)])

    def _give_up(self, rank: int) -> list[tuple[int, FromHub]]:
        """Tell everybody else, once, that the generation is over: whatever they wait for may never come."""
        self._wants = []
        if not self._is_whole:
            return []
        self._is_whole = False
        void = Void(generation=self.controller.generation)
        return [(other, void) for other in sorted(self.present) if other != rank]

    def _decide(self, event: Event, *, first: list[tuple[int, FromHub]] | None = None) -> Answer:
        letters = first or []
        actions = [] if self._stop is not None else self._ask(event)
        for action in actions:
            letters += [(rank, action) for rank in self._addressees(action)]
            if isinstance(action, Regroup):
                self._is_whole = True
                self._values = {}
            elif isinstance(action, Stop) and action.rank is None:
                self._stop = action
        return Answer(letters=letters, actions=actions)

    def _addressees(self, action: Action) -> list[int]:
        if isinstance(action, Placed):
            return [action.rank]
        if isinstance(action, Feed):
            return [action.donor]
        if isinstance(action, Regroup | Invite):
            return [rank for rank in self.controller.live if rank in self.present]
        return sorted(self.present) if action.rank is None else [action.rank]

    def _ask(self, event: Event) -> list[Action]:
        try:
            return self.controller.handle(event)
        except Exception as error:
            # A bug of ours; everybody would wait for an answer that never comes.
            return [Stop(reason=f"the controller failed: {type(error).__name__}: {error}")]
