"""Who is left, and where they go on: a fold over events, answered with actions. No clock, no I/O.

Workers join, report how far they are, and leave. When everybody who is left has reported, the controller
writes down the next *generation*: its members, the version they all go to, and the schedule they follow.
Generations never repeat. A bug report is a list of events.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.commit import Standing, agree
from holdfast.errors import InputError
from holdfast.membership import Action, Event, Joined, Left, Needs, Regroup, Reported, Stop
from holdfast.plan.choose import choose
from holdfast.plan.problem import Costs, Problem, Worker, make_speeds, parse_worker


class Controller:
    """The state of one pipeline job; the same events give the same state and the same actions."""

    def __init__(self) -> None:
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
        self._reports: dict[int, Standing] = {}

    @property
    def live(self) -> list[int]:
        """Ranks that have joined and not left."""
        return sorted(self.needs.keys() - {*self.dead, *self.done})

    def handle(self, event: Event) -> list[Action]:
        """Take in an event and return what is to be done about it."""
        if self.is_stopped:
            return [Stop(reason="the job has been stopped")] if isinstance(event, Reported) else []
        if isinstance(event, Joined):
            return self._join(event)
        if isinstance(event, Left):
            if event.rank in (*self.dead, *self.done) or (event.is_done and event.rank not in self.needs):
                return []
            (self.done if event.is_done else self.dead).append(event.rank)
            self._reports.pop(event.rank, None)
        elif event.generation == self.generation and event.rank in self.live:
            self._reports[event.rank] = event.standing
            self.speeds = self.speeds if event.speeds is None else dict(event.speeds)
            if event.cap is not None:
                self.caps[event.rank] = event.cap
        return self._decide()

    def _join(self, event: Joined) -> list[Action]:
        first = next(iter(self.needs.values()), event.needs)
        shape = (first.dp, first.pp, first.microbatches)
        mine = (event.needs.dp, event.needs.pp, event.needs.microbatches)
        if shape != mine:
            return self._stop(
                f"rank {event.rank} has dp, pp and micro-batches {mine}, expected {shape} as the others"
            )
        if not 0 <= event.rank < first.dp * first.pp:
            return self._stop(
                f"rank {event.rank} has no place in {first.dp} pipelines of {first.pp} stages each"
            )
        self.needs[event.rank] = event.needs
        return []

    def _decide(self) -> list[Action]:
        """Go on once everybody who is left has reported."""
        if not self.live or not self._reports or self._reports.keys() != set(self.live):
            return []
        needs = self.needs[self.live[0]]
        # A rank can be dead before it has joined: nobody waits for it.
        missing = set(range(needs.dp * needs.pp)) - self.needs.keys() - set(self.dead)
        if self.generation < 0 and missing:
            return []
        if lost := lost_stages(self.live, dp=needs.dp, pp=needs.pp):
            return self._stop(_say_lost(lost, needs, self._reports))
        agreement = agree(self._reports, stages=needs.pp)
        if agreement is None:
            return self._stop(f"the survivors have no version in common: {_say_versions(self._reports)}")
        try:
            schedule = choose(self.problem(), fault_free=needs.fault_free)
        except InputError as error:
            return self._stop(str(error))
        self.generation += 1
        self._reports = {}
        return [
            Regroup(
                generation=self.generation,
                members=self.live,
                agreement=agreement,
                schedule=str(schedule),
            )
        ]

    def problem(self) -> Problem:
        """Return what there is to plan for those who are left."""
        needs = self.needs[self.live[0]]
        changed = {parse_worker(name): speed for name, speed in self.speeds.items()}
        live = set(self.live)
        for rank in range(needs.dp * needs.pp):
            if rank not in live:
                changed[worker_of(rank, needs.pp)] = 0.0
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
        caps = [self.caps[rank] for rank in self.live if rank in self.caps and rank % needs.pp == stage]
        return min(caps, default=needs.dp * needs.microbatches)

    def _stop(self, reason: str) -> list[Action]:
        self.is_stopped = True
        return [Stop(reason=reason)]


def fold(events: Sequence[Event]) -> Controller:
    """Return the controller that has seen these events: how one that died comes back."""
    controller = Controller()
    for event in events:
        controller.handle(event)
    return controller


def worker_of(rank: int, pp: int) -> Worker:
    """Return the place of a rank: a pipeline's ranks are in a row, so a node holds different stages."""
    return Worker(*divmod(rank, pp))


def lost_stages(live: Sequence[int], *, dp: int, pp: int) -> list[int]:
    """Return the stages of which nobody is left."""
    alive = {rank % pp for rank in live}
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
