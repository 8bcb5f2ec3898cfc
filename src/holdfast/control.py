"""Who is left, and where they go on: a fold over events, answered with actions. No clock, no I/O.

Workers join, report how far they are, and leave. When everybody who is left has reported, the controller
writes down the next *generation*: its members, the version they all go to, and the schedule they follow.
Newcomers are given the places of the dead, and donors to get their state from; when they have caught up, the
others are invited to meet them. Generations never repeat. A bug report is a list of events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.commit import Standing, agree
from holdfast.errors import InputError
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
    Move,
    Needs,
    Placed,
    Regroup,
    Reported,
    Stop,
)
from holdfast.plan.choose import choose
from holdfast.plan.ops import Schedule
from holdfast.plan.problem import Costs, Problem, Worker, make_speeds, parse_worker

Plan = Callable[[Problem, str], Schedule]
"""A problem and the name of the fault-free schedule in, a schedule out; raises ``InputError``."""


@dataclass
class Newcomer:
    """A worker that came to a job under way, until it is a member."""

    place: int | None = None
    """None: a spare."""
    address: str = ""
    """Where it takes in state; empty: not yet."""
    donor: int | None = None
    is_ready: bool = False
    """It has caught up."""


class Exchange(NamedTuple):
    """Places that have changed, until a step has been made with them."""

    version: int
    before: dict[int, int]
    """Where everybody was, by rank."""


class Controller:
    """The state of one pipeline job; the same events give the same state and the same actions."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.generation = -1
        self.needs: dict[int, Needs] = {}
        """Of every worker that ever joined, by rank."""
        self.dead: list[int] = []
        """In the order in which they went."""
        self.done: list[int] = []
        self.speeds: dict[str, float] = {}
        self.is_stopped = False
        self.caps: dict[int, int] = {}
        """Micro-batches that fit into a worker's memory, by rank, where it has a limit."""
        self.places: dict[int, int] = {}
        """Of every member, by rank; also of those that are gone, until somebody else has theirs."""
        self.newcomers: dict[int, Newcomer] = {}
        self._plan = plan or _choose
        self._reports: dict[int, Standing] = {}
        self._is_invited = False
        self._wanted: list[tuple[int, int]] = []
        """From which place to which workers are to go at the next meeting."""
        self._exchange: Exchange | None = None
        self._held: dict[int, int] = {}
        """Places as their holders report them."""
        self.measured: dict[int, float] = {}
        """Speeds of ranks, from whoever watches them."""
        self._wish = self._heeded = 0
        """The last wish that was heard, and the one that the generation follows."""

    @property
    def live(self) -> list[int]:
        """Ranks of the members that have not left."""
        return sorted(self.needs.keys() - {*self.dead, *self.done, *self.newcomers})

    def handle(self, event: Event) -> list[Action]:
        """Take in an event and return what is to be done about it."""
        if self.is_stopped:
            return [Stop(reason="the job has been stopped")] if isinstance(event, Reported) else []
        if isinstance(event, Joined):
            return self._join(event)
        if isinstance(event, Hungry):
            return self._hunger(event)
        if isinstance(event, Left):
            return self._leave(event)
        if isinstance(event, Advised):
            return self._heed(event)
        if isinstance(event, Arranged):
            return self._arrange(event)
        return self._report(event)

    # --- who comes and goes -------------------------------------------------------------------

    def _join(self, event: Joined) -> list[Action]:
        first = next(iter(self.needs.values()), event.needs)
        shape = (first.dp, first.pp, first.microbatches)
        mine = (event.needs.dp, event.needs.pp, event.needs.microbatches)
        # Who comes late is sent away for what would end the job at its start.
        late = event.rank if event.is_newcomer else None
        if shape != mine:
            return self._stop(
                f"rank {event.rank} has dp, pp and micro-batches {mine}, expected {shape} as the others", late
            )
        if late is None and not 0 <= event.rank < first.dp * first.pp:
            return self._stop(
                f"rank {event.rank} has no place in {first.dp} pipelines of {first.pp} stages each"
            )
        self.needs[event.rank] = event.needs
        if late is None:
            self.places[event.rank] = event.rank
            return []
        self.dead = [rank for rank in self.dead if rank != event.rank]
        self.newcomers[event.rank] = Newcomer()
        return self._fill_places()

    def _leave(self, event: Left) -> list[Action]:
        rank = event.rank
        if rank in (*self.dead, *self.done) or (event.is_done and rank not in self.needs):
            return []
        (self.done if event.is_done else self.dead).append(rank)
        self._reports.pop(rank, None)
        self.newcomers.pop(rank, None)
        for newcomer in self.newcomers.values():
            if newcomer.donor == rank:
                newcomer.donor, newcomer.is_ready = None, False
        return [*self._fill_places(), *self._decide()]

    def _report(self, event: Reported) -> list[Action]:
        newcomer = self.newcomers.get(event.rank)
        if newcomer is not None:
            newcomer.is_ready = event.generation == -1 and newcomer.donor is not None
        elif event.generation == self.generation and event.rank in self.live:
            self._reports[event.rank] = event.standing
            self.speeds = self.speeds if event.speeds is None else dict(event.speeds)
            self._wanted = self._wanted if event.swap is None else self._both_ways(event.swap)
            self._held[event.rank] = self.places[event.rank] if event.place is None else event.place
        else:
            return self._decide()
        if event.cap is not None:
            self.caps[event.rank] = event.cap
        return self._decide() or self._invite()

    def _hunger(self, event: Hungry) -> list[Action]:
        if event.rank in self.live:  # It was let in, and lost its donor before it was where the others are.
            self.newcomers[event.rank] = Newcomer(place=self.places[event.rank])
            self._reports.pop(event.rank, None)
        newcomer = self.newcomers.get(event.rank)
        if newcomer is None or newcomer.place is None:
            return []
        newcomer.address, newcomer.donor, newcomer.is_ready = event.address, None, False
        return [*self._feed(), *self._decide()]

    def _fill_places(self) -> list[Action]:
        """Give free places to those who have none: to each the one that it had before, else the lowest."""
        if self.generation < 0:
            return []
        needs = next(iter(self.needs.values()))
        taken = {self.places[rank] for rank in self.live}
        taken |= {each.place for each in self.newcomers.values() if each.place is not None}
        free = [place for place in range(needs.dp * needs.pp) if place not in taken]
        actions: list[Action] = []
        for rank, newcomer in sorted(self.newcomers.items()):
            if newcomer.place is None and free:
                before = self.places.get(rank, -1)
                newcomer.place = before if before in free else free[0]
                free.remove(newcomer.place)
                actions.append(Placed(rank=rank, place=newcomer.place))
        return actions

    def _feed(self) -> list[Action]:
        """Find donors for those who wait for one."""
        if not self.live:
            return []
        pp = self.needs[self.live[0]].pp
        actions: list[Action] = []
        for rank, newcomer in sorted(self.newcomers.items()):
            if newcomer.place is None or not newcomer.address or newcomer.donor is not None:
                continue
            donors = [each for each in self.live if self.places[each] % pp == newcomer.place % pp]
            if donors:
                newcomer.donor = donors[0]
                actions.append(Feed(donor=donors[0], rank=rank, address=newcomer.address))
        return actions

    def _heed(self, event: Advised) -> list[Action]:
        if event.generation != self.generation or self._reports or self.newcomers:
            return []  # Things have changed since, or are about to.
        self._wanted = list(event.moves)
        return self._invite()

    def _arrange(self, event: Arranged) -> list[Action]:
        is_changing = self._reports or any(each.place is not None for each in self.newcomers.values())
        if event.number <= self._wish or is_changing or self.generation < 0:
            return []  # They are about to meet for another reason: it was decided about something else.
        self._wish, self.measured, self._wanted = event.number, dict(event.speeds), list(event.moves)
        return self._invite()

    def _invite(self) -> list[Action]:
        """Ask the members to meet, once; if they are about to, that will do."""
        is_ready = any(newcomer.is_ready for newcomer in self.newcomers.values())
        is_needed = bool(self._wanted) or is_ready or self._wish > self._heeded
        if not is_needed or self._is_invited or self._reports or self.generation < 0:
            return []
        self._is_invited = True
        return [Invite(generation=self.generation)]

    # --- decisions ----------------------------------------------------------------------------

    def _decide(self) -> list[Action]:
        """Go on once everybody who is left has reported."""
        if not self.live or not self._reports or self._reports.keys() != set(self.live):
            return []
        needs = self.needs[self.live[0]]
        # A rank can be dead before it has joined: nobody waits for it.
        missing = set(range(needs.dp * needs.pp)) - self.needs.keys() - set(self.dead)
        if self.generation < 0 and missing:
            return []
        agreement = agree(self._reports, stages=needs.pp)
        if agreement is not None:
            self._settle_exchange(agreement.version)
        if lost := lost_stages([self.places[rank] for rank in self.live], pp=needs.pp):
            return self._stop(_say_lost(lost, needs, self._reports))
        if agreement is None:
            return self._stop(f"the survivors have no version in common: {_say_versions(self._reports)}")
        entering = self._admit()
        moves = self._move(agreement.version)
        try:
            schedule = self._plan(self.problem(), needs.fault_free)
        except InputError as error:
            return self._stop(str(error))
        self.generation += 1
        self._reports, self._is_invited, self._heeded = {}, False, self._wish
        holders = sorted(self.live, key=self.places.__getitem__)
        regroup = Regroup(
            generation=self.generation,
            members=[self.places[rank] for rank in holders],
            holders=holders,
            newcomers=entering,
            moves=moves,
            agreement=agreement,
            schedule=str(schedule),
            wish=self._heeded,
        )
        return [regroup, *self._fill_places(), *self._feed(), *self._invite()]

    def _admit(self) -> list[int]:
        """Make members of the newcomers that have caught up, and return their places."""
        ready = [(rank, each.place) for rank, each in sorted(self.newcomers.items()) if each.is_ready]
        found = []
        for rank, place in ready:
            assert place is not None
            del self.newcomers[rank]
            self.places[rank] = place
            found.append(place)
        return sorted(found)

    def _settle_exchange(self, version: int) -> None:
        """Undo an exchange that did not come about: as no step was made with it, all have what they had."""
        exchange, self._exchange = self._exchange, None
        if exchange is None or version != exchange.version:
            return
        if any(self._held[rank] != self.places[rank] for rank in self.live):
            self.places |= exchange.before

    def _move(self, version: int) -> list[Move]:
        """Give members the places that were wanted for them, if all of it can still be done."""
        wanted, self._wanted = dict(self._wanted), []
        holders = {self.places[rank]: rank for rank in self.live}
        taken = {place for place in holders if place not in wanted}
        taken |= {each.place for each in self.newcomers.values() if each.place is not None}
        donors = {place: self._donor(place, holders) for place in wanted.values()}
        if (
            not wanted
            or not wanted.keys() <= holders.keys()
            or taken & {*wanted.values()}
            or None in donors.values()
        ):
            return []
        self._exchange = Exchange(version=version, before=dict(self.places))
        self.places |= {holders[place]: to for place, to in wanted.items()}
        pp = self.needs[self.live[0]].pp
        moves = [
            Move(rank=holders[place], donor=donor)
            for place, to in sorted(wanted.items())
            if place % pp != to % pp and (donor := donors[to]) is not None
        ]
        caps = {move.rank: self.caps[move.donor] for move in moves if move.donor in self.caps}
        self.caps |= caps  # What fits depends on the stage, where workers have the same memory.
        for newcomer in self.newcomers.values():
            if newcomer.donor in [move.rank for move in moves]:
                newcomer.donor, newcomer.is_ready = None, False
        return moves

    def _donor(self, place: int, holders: dict[int, int]) -> int | None:
        """Return who has the state of a place: its holder, else the first of its stage."""
        pp = self.needs[self.live[0]].pp
        peers = [rank for held, rank in sorted(holders.items()) if held % pp == place % pp]
        return holders.get(place, peers[0] if peers else None)

    def _both_ways(self, swap: tuple[str, str]) -> list[tuple[int, int]]:
        pp = next(iter(self.needs.values())).pp
        first, second = (worker.pipeline * pp + worker.stage for worker in map(parse_worker, swap))
        return [(first, second), (second, first)]

    def problem(self) -> Problem:
        """Return what there is to plan for those who are left."""
        needs = self.needs[self.live[0]]
        changed = {parse_worker(name): speed for name, speed in self.speeds.items()}
        held = {self.places[rank] for rank in self.live}
        for rank in sorted(self.measured.keys() & set(self.live)):
            changed[worker_of(self.places[rank], needs.pp)] = self.measured[rank]
        for place in range(needs.dp * needs.pp):
            if place not in held:
                changed[worker_of(place, needs.pp)] = 0.0
        caps = tuple(self._cap(stage, needs) for stage in range(needs.pp))
        return Problem(
            dp=needs.dp,
            pp=needs.pp,
            microbatches=needs.microbatches,
            costs=tuple(Costs(*each) for each in needs.costs),
            comm=needs.comm,
            memory=caps if self.caps else None,
            speeds=make_speeds(needs.dp, needs.pp, changed),
        )

    def _cap(self, stage: int, needs: Needs) -> int:
        caps = [
            self.caps[rank]
            for rank in self.live
            if rank in self.caps and self.places[rank] % needs.pp == stage
        ]
        return min(caps, default=needs.dp * needs.microbatches)

    def _stop(self, reason: str, rank: int | None = None) -> list[Action]:
        self.is_stopped = rank is None
        return [Stop(reason=reason, rank=rank)]


def _choose(problem: Problem, fault_free: str) -> Schedule:
    return choose(problem, fault_free=fault_free)


def fold(events: Sequence[Event]) -> Controller:
    """Return the controller that has seen these events: how one that died comes back."""
    controller = Controller()
    for event in events:
        controller.handle(event)
    return controller


def worker_of(place: int, pp: int) -> Worker:
    """Return a place by its name: a pipeline's places are in a row, so a node holds different stages."""
    return Worker(*divmod(place, pp))


def lost_stages(live: Sequence[int], *, pp: int) -> list[int]:
    """Return the stages of which nobody is left, given the places that are held."""
    alive = {place % pp for place in live}
    return [stage for stage in range(pp) if stage not in alive]


def _say_lost(stages: list[int], needs: Needs, reports: dict[int, Standing]) -> str:
    names = ", ".join(str(Worker(pipeline, stage)) for stage in stages for pipeline in range(needs.dp))
    which = "stage" if len(stages) == 1 else "stages"
    step = min(standing.version for standing in reports.values())
    return (
        f"every worker of {which} {', '.join(map(str, stages))} is gone ({names}), and with them their "
        f"parameters: training ended after step {step}; go on from a checkpoint"
    )


def _say_versions(reports: dict[int, Standing]) -> str:
    return ", ".join(f"rank {rank} is at {sorted(reports[rank].reachable)}" for rank in sorted(reports))
