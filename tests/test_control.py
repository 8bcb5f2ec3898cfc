"""Who is left, and where they go on: lists of events, and the actions that answer them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.commit import Agreement, Standing, Tally
from holdfast.control import Controller, fold, lost_stages, worker_of
from holdfast.membership import Action, Event, Joined, Left, Needs, Regroup, Reported, Stop
from holdfast.plan.ops import parse_schedule
from holdfast.plan.problem import Costs, Problem, Worker, make_speeds
from holdfast.plan.validate import check_order

SMALL = Needs(dp=2, pp=1, microbatches=1, fault_free="1f1b")
SQUARE = Needs(dp=2, pp=2, microbatches=1)
BOTH = "dp 2 pp 1 microbatches 1\n0.0: 0F0.0 0B0.0\n1.0: 0F1.0 0B1.0\n"
FIRST_ALONE = "dp 2 pp 1 microbatches 1\n0.0: 0F0.0 0I0.0 0F1.0 0I1.0 0W0.0 0W1.0\n1.0: -\n"
ALL = """dp 2 pp 2 microbatches 1
0.0: 0F0.0 0B0.0
0.1: 1F0.0 1I0.0 1W0.0
1.0: 0F1.0 0B1.0
1.1: 1F1.0 1I1.0 1W1.0
"""
WITHOUT_3 = """dp 2 pp 2 microbatches 1
0.0: 0F0.0 0B0.0
0.1: 1F0.0 1I0.0 1F1.0 1I1.0 1W0.0 1W1.0
1.0: 0F1.0 0B1.0
1.1: -
"""
STOPPED = Stop(reason="the job has been stopped")


def joined(needs: Needs, ranks: Iterable[int] | None = None) -> list[Event]:
    """Return the events of ranks that join, all of them if none are given."""
    return [
        Joined(rank=rank, needs=needs) for rank in (range(needs.dp * needs.pp) if ranks is None else ranks)
    ]


def reported(ranks: Iterable[int], generation: int, version: int = 0) -> list[Event]:
    """Return the events of ranks that are all at a version."""
    standing = Standing(version=version)
    return [Reported(rank=rank, generation=generation, standing=standing) for rank in ranks]


def answers(controller: Controller, events: Iterable[Event]) -> list[Action]:
    """Return everything that a controller says to these events."""
    return [action for event in events for action in controller.handle(event)]


def begun(needs: Needs) -> Controller:
    """Return a controller whose workers are all in generation 0."""
    return fold([*joined(needs), *reported(range(needs.dp * needs.pp), -1)])


def regroup(generation: int, members: list[int], schedule: str, version: int = 0) -> Regroup:
    """Return the answer that lets members go on, where nobody has to be corrected."""
    agreement = Agreement(version=version)
    return Regroup(
        generation=generation, members=members, holders=members, agreement=agreement, schedule=schedule
    )


# --- beginning --------------------------------------------------------------------------------


@pytest.mark.parametrize("events", list(permutations([*joined(SMALL), *reported([0, 1], -1)])))
def test_job_begins_when_everybody_has_joined_and_reported(events: Sequence[Event]) -> None:
    """Nobody is left behind at the start; a report from one who has not joined is none."""
    places = {event: place for place, event in enumerate(map(str, events))}
    is_heard = all(
        places[str(join)] < places[str(report)]
        for join, report in zip(joined(SMALL), reported([0, 1], -1), strict=True)
    )
    assert answers(Controller(), events) == ([regroup(0, [0, 1], BOTH)] if is_heard else [])


def test_schedule_is_the_one_asked_for_while_all_are_well() -> None:
    """A healthy job gets 1F1B or zero bubble, as its script says."""
    events = [*joined(SQUARE), *reported(range(4), -1)]
    assert answers(Controller(), events) == [regroup(0, [0, 1, 2, 3], ALL)]


def test_one_who_died_before_it_joined_is_not_waited_for() -> None:
    """The others begin without it."""
    events = [*joined(SMALL, [0]), *reported([0], -1), Left(rank=1)]
    assert answers(Controller(), events) == [regroup(0, [0], FIRST_ALONE)]


def test_one_who_was_counted_out_stays_out() -> None:
    """A rank that is dead does not come back by joining."""
    controller = fold([Left(rank=1), *joined(SMALL), *reported([1], -1)])
    assert controller.live == [0]
    assert answers(controller, reported([0], -1)) == [regroup(0, [0], FIRST_ALONE)]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (
            Joined(rank=1, needs=Needs(dp=2, pp=2, microbatches=1)),
            "rank 1 has dp, pp and micro-batches (2, 2, 1), expected (2, 1, 1) as the others",
        ),
        (
            Joined(rank=1, needs=Needs(dp=2, pp=1, microbatches=3)),
            "rank 1 has dp, pp and micro-batches (2, 1, 3), expected (2, 1, 1) as the others",
        ),
        (Joined(rank=2, needs=SMALL), "rank 2 has no place in 2 pipelines of 1 stages each"),
        (Joined(rank=-1, needs=SMALL), "rank -1 has no place in 2 pipelines of 1 stages each"),
    ],
)
def test_jobs_that_do_not_fit_together_are_stopped(other: Joined, reason: str) -> None:
    """Workers that were started with other shapes, or too many of them, are told so."""
    assert answers(Controller(), [*joined(SMALL, [0]), other]) == [Stop(reason=reason)]


# --- failing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("events", list(permutations([Left(rank=3), *reported([0, 1, 2], 0)])))
def test_survivors_go_on_whatever_was_heard_first(events: Sequence[Event]) -> None:
    """Reports and the news of a death may come in any order; the answer is the same."""
    assert answers(begun(SQUARE), events) == [regroup(1, [0, 1, 2], WITHOUT_3)]


def test_lost_connection_is_no_death() -> None:
    """When all report and nobody has left, all go on."""
    assert answers(begun(SQUARE), reported(range(4), 0, 5)) == [regroup(1, [0, 1, 2, 3], ALL, 5)]


def test_two_at_once_are_one_recovery() -> None:
    """Survivors are grouped once for all who died before they had reported."""
    events = [*reported([1], 0), Left(rank=3), Left(rank=0), *reported([2], 0)]
    (answer,) = answers(begun(SQUARE), events)
    assert isinstance(answer, Regroup)
    assert (answer.generation, answer.members) == (1, [1, 2])


def test_death_during_recovery_is_part_of_it() -> None:
    """A worker that reported and then died is not waited for, nor is its standing."""
    far = Reported(rank=0, generation=0, standing=Standing(version=9))
    events = [Left(rank=3), far, *reported([1], 0), Left(rank=0), *reported([2], 0)]
    (answer,) = answers(begun(SQUARE), events)
    assert isinstance(answer, Regroup)
    assert (answer.members, answer.agreement) == ([1, 2], Agreement(version=0))


def test_last_one_to_report_may_die_instead() -> None:
    """The death of the only one that was waited for lets the others go on at once."""
    events = [*reported([0, 1, 2], 0), Left(rank=3)]
    assert answers(begun(SQUARE), events) == [regroup(1, [0, 1, 2], WITHOUT_3)]


def test_generation_that_was_never_connected_is_left_like_any_other() -> None:
    """A death right after a regroup leads to the next one."""
    controller = begun(SQUARE)
    answers(controller, reported(range(4), 0))
    events = [Left(rank=3), *reported([0, 1, 2], 1)]
    assert answers(controller, events) == [regroup(2, [0, 1, 2], WITHOUT_3)]


def test_late_reports_of_old_generations_are_ignored() -> None:
    """Only reports of the present generation count, and only of those who live."""
    controller = begun(SMALL)
    late = [*reported([0, 1], -1), *reported([0, 1], 1), *reported([5], 0)]
    assert answers(controller, late) == []
    assert answers(controller, reported([0, 1], 0)) == [regroup(1, [0, 1], BOTH)]


def test_last_report_of_a_worker_counts() -> None:
    """A worker that says it twice is taken at its last word."""
    events = [*reported([0], 0, 1), *reported([0, 1], 0, 2)]
    assert answers(begun(SMALL), events) == [regroup(1, [0, 1], BOTH, 2)]


def test_agreement_comes_with_its_tally() -> None:
    """Survivors are told the version they all can reach, and what made it."""
    tallies = {4: Tally(squares={0: 1.0}, overflows={0: False})}
    prepared = Standing(version=4, is_prepared=True, tallies=tallies)
    ahead = Standing(version=5, has_shadow=True, tallies=tallies)
    events: list[Event] = [
        Reported(rank=0, generation=0, standing=prepared),
        Reported(rank=1, generation=0, standing=ahead),
    ]
    agreement = Agreement(version=5, tally=tallies[4])
    assert answers(begun(SMALL), events) == [
        Regroup(generation=1, members=[0, 1], holders=[0, 1], agreement=agreement, schedule=BOTH)
    ]


def test_one_who_is_done_is_not_waited_for() -> None:
    """Whoever has finished leaves without being dead."""
    controller = begun(SMALL)
    assert answers(controller, [Left(rank=1, is_done=True), *reported([0], 0)]) == [
        regroup(1, [0], FIRST_ALONE)
    ]
    assert (controller.done, controller.dead) == ([1], [])


# --- stopping ---------------------------------------------------------------------------------


def test_job_without_a_stage_is_stopped() -> None:
    """When nobody holds the parameters of a stage any more, the others are told what to do."""
    events = [Left(rank=3), Left(rank=1), *reported([0, 2], 0, 7)]
    reason = (
        "every worker of stage 1 is gone (0.1, 1.1), and with them their parameters: "
        "training ended after step 7; go on from a checkpoint"
    )
    assert answers(begun(SQUARE), events) == [Stop(reason=reason)]


def test_job_without_a_common_version_is_stopped() -> None:
    """What must not happen is said, with what everybody could have reached."""
    events = [*reported([0], 0, 3), *reported([1], 0, 5)]
    reason = "the survivors have no version in common: rank 0 is at [3], rank 1 is at [5]"
    assert answers(begun(SMALL), events) == [Stop(reason=reason)]


def test_whoever_reports_after_the_end_is_told() -> None:
    """Nobody waits for an answer that never comes; those who leave need none."""
    controller = begun(SMALL)
    answers(controller, [*reported([0], 0, 3), *reported([1], 0, 5)])
    events = [*reported([0], 0), Left(rank=0), *joined(SMALL, [0])]
    assert answers(controller, events) == [STOPPED]


# --- speeds and caps --------------------------------------------------------------------------


def slow(rank: int, generation: int, speeds: dict[str, float] | None, cap: int | None = None) -> Reported:
    """Return a report that asks to plan with other numbers."""
    return Reported(rank=rank, generation=generation, standing=Standing(version=0), speeds=speeds, cap=cap)


def test_speeds_hold_until_others_are_given() -> None:
    """What the script said stays true through failures, until it says something else."""
    controller = begun(SQUARE)
    answers(controller, [slow(rank, 0, {"1.0": 0.5}) for rank in range(4)])
    assert controller.problem().speeds == ((1.0, 1.0), (0.5, 1.0))
    answers(controller, [Left(rank=3), *reported(range(3), 1)])
    assert controller.problem().speeds == ((1.0, 1.0), (0.5, 0.0))
    answers(controller, [slow(rank, 2, {}) for rank in range(3)])
    assert controller.problem().speeds == ((1.0, 1.0), (1.0, 0.0))
    assert controller.generation == 3


def test_dead_worker_has_no_speed() -> None:
    """Whatever the script says of it."""
    controller = begun(SQUARE)
    answers(controller, [Left(rank=3), *(slow(rank, 0, {"1.1": 1.0}) for rank in range(3))])
    assert controller.problem().speeds == ((1.0, 1.0), (1.0, 0.0))


@pytest.mark.parametrize(
    ("speeds", "reason"),
    [
        ({"1": 0.5}, "'1' is no worker, expected pipeline.stage, such as '1.2'"),
        ({"0.1": 0.5}, "there is no worker 0.1, expected 0.0 to 1.0 (pipeline.stage)"),
        ({"0.0": 2.0}, "worker 0.0 has speed 2.0, expected 0 (dead) to 1 (healthy)"),
        ({"0.0": 0.0, "1.0": 0.0}, "all 2 workers of stage 0 are dead, expected one alive"),
    ],
)
def test_speeds_that_make_no_sense_stop_the_job(speeds: dict[str, float], reason: str) -> None:
    """The script is told what was wrong with them."""
    assert answers(begun(SMALL), [slow(rank, 0, speeds) for rank in range(2)]) == [Stop(reason=reason)]


def test_smallest_cap_of_a_stage_counts() -> None:
    """Workers say what fits into their memory; a stage without a limit may hold everything."""
    needs = Needs(dp=2, pp=2, microbatches=3, costs=((1, 2, 3), (4, 5, 6)), comm=0.5)
    caps = [4, None, 3, None]
    controller = fold([*joined(needs), *(slow(rank, -1, None, cap) for rank, cap in enumerate(caps))])
    assert controller.problem() == Problem(
        dp=2, pp=2, microbatches=3, costs=(Costs(1, 2, 3), Costs(4, 5, 6)), comm=0.5, memory=(3, 6)
    )
    answers(controller, reported(range(4), 0))
    assert controller.problem().memory == (3, 6)


def test_worker_without_room_stops_the_job() -> None:
    """No room at all is not the same as any amount of it."""
    reason = "memory of stage 0 is 0, expected 1 micro-batch or more"
    assert answers(begun(SMALL), [slow(rank, 0, None, 0) for rank in range(2)]) == [Stop(reason=reason)]


def test_schedule_that_does_not_fit_is_not_followed() -> None:
    """1F1B that needs more memory than there is gives way to a schedule that fits."""
    needs = Needs(dp=1, pp=2, microbatches=2, fault_free="1f1b")
    (answer,) = answers(Controller(), [*joined(needs), *(slow(rank, -1, None, 1) for rank in range(2))])
    assert isinstance(answer, Regroup)
    assert answer.schedule.splitlines()[1] == "0.0: 0F0.0 0B0.0 0F0.1 0B0.1"


# --- places -----------------------------------------------------------------------------------


def test_ranks_of_a_pipeline_are_in_a_row() -> None:
    """Rank 5 of pipelines with three stages is the last stage of the second."""
    assert [worker_of(rank, 3) for rank in (0, 2, 3, 5)] == [
        Worker(0, 0),
        Worker(0, 2),
        Worker(1, 0),
        Worker(1, 2),
    ]


def test_stage_is_lost_with_its_last_worker() -> None:
    """As long as one pipeline has the stage, it is not."""
    assert lost_stages([0, 4], pp=3) == [2]
    assert lost_stages([0, 4, 2], pp=3) == []
    assert lost_stages([], pp=3) == [0, 1, 2]


# --- any events at all ------------------------------------------------------------------------


@st.composite
def stories(draw: st.DrawFn) -> tuple[Needs, list[Event]]:
    """Return a small job and events in any order, most of them sensible."""
    needs = Needs(
        dp=draw(st.integers(1, 3)), pp=draw(st.integers(1, 2)), microbatches=draw(st.integers(1, 2))
    )
    ranks = st.integers(0, needs.dp * needs.pp - 1)
    standing = st.just(Standing(version=0))
    event: st.SearchStrategy[Event] = st.one_of(
        st.builds(Joined, rank=ranks, needs=st.just(needs)),
        st.builds(Reported, rank=ranks, generation=st.integers(-1, 2), standing=standing),
        st.builds(Left, rank=ranks, is_done=st.booleans()),
    )
    rounds = st.lists(event, max_size=5).map(list)
    events: list[Event] = draw(st.permutations(joined(needs))) + draw(rounds)
    for generation in range(-1, draw(st.integers(0, 3))):
        events += draw(st.permutations(reported(range(needs.dp * needs.pp), generation))) + draw(rounds)
    return needs, events


class Witness:
    """Writes down who is there, in its own way, and what must be said to an event."""

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.ranks = set(range(needs.dp * needs.pp))
        self.known: set[int] = set()
        self.gone: set[int] = set()
        self.waiting: set[int] = set()
        self.generation = -1
        self.is_over = False

    def expect(self, event: Event) -> str | None:
        """Return the kind of answer that is due, None for silence."""
        if self.is_over:
            return "stop" if isinstance(event, Reported) else None
        if isinstance(event, Joined):
            self.known.add(event.rank)
            return None
        if isinstance(event, Left):
            self.gone |= {event.rank} if not event.is_done or event.rank in self.known else set()
        elif isinstance(event, Reported) and event.generation == self.generation and event.rank in self.known:
            self.waiting.add(event.rank)
        live = self.known - self.gone
        has_begun = self.generation >= 0 or self.known | self.gone == self.ranks
        if not (live and has_begun and live <= self.waiting):
            return None
        self.waiting = set()
        self.is_over = {rank % self.needs.pp for rank in live} != set(range(self.needs.pp))
        self.generation += not self.is_over
        return "stop" if self.is_over else "regroup"

    def check(self, answer: Regroup) -> None:
        """Compare a regroup with what was written down, and its schedule with who is left."""
        live = sorted(self.known - self.gone)
        assert (answer.generation, answer.members) == (self.generation, live)
        dead = {worker_of(rank, self.needs.pp): 0.0 for rank in self.ranks - set(live)}
        shape = (self.needs.dp, self.needs.pp)
        problem = Problem(
            dp=shape[0], pp=shape[1], microbatches=self.needs.microbatches, speeds=make_speeds(*shape, dead)
        )
        check_order(problem, parse_schedule(answer.schedule))


@settings(max_examples=150)
@given(stories())
def test_whatever_happens_the_living_go_on_or_are_told_to_stop(story: tuple[Needs, list[Event]]) -> None:
    """Generations never repeat, members live, schedules are valid, and only a lost stage stops the job."""
    needs, events = story
    controller, witness = Controller(), Witness(needs)
    for event in events:
        due = witness.expect(event)
        actions = controller.handle(event)
        assert [type(action).__name__.lower() for action in actions] == ([due] if due else [])
        for action in actions:
            if isinstance(action, Regroup):
                witness.check(action)


@settings(max_examples=60)
@given(stories(), st.data())
def test_controller_that_died_comes_back_the_same(
    story: tuple[Needs, list[Event]], data: st.DataObject
) -> None:
    """Folding the events gives the controller that lived through them, and it says the same from then on."""
    _, events = story
    when = data.draw(st.integers(0, len(events)))
    controller = Controller()
    answers(controller, events[:when])
    again = fold(events[:when])
    assert vars(again) == vars(controller)
    assert answers(again, events[when:]) == answers(controller, events[when:])
