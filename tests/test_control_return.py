"""Newcomers: places, donors and meetings, as lists of events and the actions that answer them."""

from __future__ import annotations

import random

import msgspec
import pytest

from holdfast.commit import Standing
from holdfast.control import Controller
from holdfast.membership import (
    Action,
    Advised,
    Arranged,
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
from test_control import SQUARE, answers, begun, reported


def newcomer(rank: int, needs: Needs = SQUARE) -> Joined:
    return Joined(rank=rank, needs=needs, is_newcomer=True)


def hungry(rank: int) -> Hungry:
    return Hungry(rank=rank, address=f"host:{rank}")


def without_3() -> Controller:
    """Return a controller of two pipelines of two stages whose rank 3 has died."""
    controller = begun(SQUARE)
    answers(controller, [Left(rank=3), *reported([0, 1, 2], 0, version=5)])
    assert controller.generation == 1
    return controller


def test_spares_that_come_before_the_first_generation_wait_for_it() -> None:
    """They stop nobody, whatever their number; the dead one's place is then theirs."""
    controller = Controller()
    assert controller.handle(newcomer(17)) == []
    events = [Joined(rank=rank, needs=SQUARE) for rank in (0, 1, 2)]
    found = answers(controller, [*events, Left(rank=3), *reported([0, 1, 2], -1)])
    assert isinstance(found[0], Regroup)
    assert found[1:] == [Placed(rank=17, place=3)]


# --- places that are exchanged ----------------------------------------------------------------


def swapped() -> Controller:
    """Return a controller whose ranks 0 and 3 are exchanging their places."""
    controller = begun(SQUARE)
    wish = [
        msgspec.structs.replace(each, swap=("0.0", "1.1")) for each in reported([0, 1, 2, 3], 0, version=5)
    ]
    regroup = only(answers(controller, wish))
    assert isinstance(regroup, Regroup)
    assert regroup.moves == [Move(rank=0, donor=3), Move(rank=3, donor=0)]
    assert (regroup.members, regroup.holders) == ([0, 1, 2, 3], [3, 1, 2, 0])
    return controller


def holding(places: dict[int, int], *, version: int) -> list[Reported]:
    standing = Standing(version=version)
    return [
        Reported(rank=rank, generation=1, standing=standing, place=place) for rank, place in places.items()
    ]


def test_an_exchange_that_did_not_come_about_is_undone() -> None:
    """Rank 3 died before it had sent anything: rank 0 still is what it was."""
    controller = swapped()
    assert answers(controller, [Left(rank=3)]) == []
    regroup = only(answers(controller, holding({0: 0, 1: 1, 2: 2}, version=5)))
    assert isinstance(regroup, Regroup)
    assert (regroup.members, regroup.holders, regroup.moves) == ([0, 1, 2], [0, 1, 2], [])


def test_an_exchange_that_all_have_made_stays() -> None:
    """Also when a meeting follows before the first step; and after a step nobody asks."""
    controller = swapped()
    regroup = only(answers(controller, holding({0: 3, 1: 1, 2: 2, 3: 0}, version=5)))
    assert isinstance(regroup, Regroup)
    assert regroup.holders == [3, 1, 2, 0]
    controller = swapped()
    assert answers(controller, [Left(rank=1)]) == []
    later = only(answers(controller, holding({0: 3, 2: 2, 3: 0}, version=6)))
    assert isinstance(later, Regroup)
    assert (later.members, later.holders) == ([0, 2, 3], [3, 2, 0])


def test_who_is_missed_less_takes_the_place_of_the_dead_where_a_planner_says_so() -> None:
    """Two of stage 0 are gone: a worker of stage 1 takes one of their places, and its state from the last."""
    needs = Needs(dp=3, pp=2, microbatches=4)
    controller = begun(needs)
    answers(controller, [Left(rank=0), Left(rank=2), *reported([1, 3, 4, 5], 0, version=7)])
    assert controller.generation == 1
    assert controller.handle(Advised(generation=0, moves=[(1, 0)])) == []  # It comes too late.
    assert controller.handle(Advised(generation=1, moves=[(1, 0)])) == [Invite(generation=1)]
    regroup = only(answers(controller, reported([1, 3, 4, 5], 1, version=9)))
    assert isinstance(regroup, Regroup)
    assert (regroup.members, regroup.holders) == ([0, 3, 4, 5], [1, 3, 4, 5])
    assert regroup.moves == [Move(rank=1, donor=4)]


def test_advice_is_not_followed_once_somebody_it_needs_is_gone() -> None:
    """Neither if a newcomer has the place by then."""
    needs = Needs(dp=3, pp=2, microbatches=4)
    controller = begun(needs)
    answers(controller, [Left(rank=0), Left(rank=2), *reported([1, 3, 4, 5], 0, version=7)])
    answers(controller, [Advised(generation=1, moves=[(1, 0)]), newcomer(0, needs)])
    regroup = only(answers(controller, reported([1, 3, 4, 5], 1, version=9)))
    assert isinstance(regroup, Regroup)
    assert (regroup.holders, regroup.moves) == ([1, 3, 4, 5], [])


def test_the_gone_are_not_exchanged() -> None:
    """The wish is forgotten."""
    controller = without_3()
    wish = [msgspec.structs.replace(each, swap=("0.0", "1.1")) for each in reported([0, 1, 2], 1, version=6)]
    regroup = only(answers(controller, wish))
    assert isinstance(regroup, Regroup)
    assert (regroup.holders, regroup.moves) == ([0, 1, 2], [])


def only(actions: list[Action]) -> Action:
    (action,) = actions
    return action


def test_a_newcomer_gets_its_place_a_donor_and_a_meeting() -> None:
    """The place that its rank had, a peer of that stage; the others are asked to meet it once."""
    controller = without_3()
    assert controller.handle(newcomer(3)) == [Placed(rank=3, place=3)]
    assert controller.handle(hungry(3)) == [Feed(donor=1, rank=3, address="host:3")]
    assert answers(controller, reported([3], -1, version=9)) == [Invite(generation=1)]
    assert answers(controller, reported([0, 1], 1, version=10)) == []
    regroup = only(answers(controller, reported([2], 1, version=10)))
    assert isinstance(regroup, Regroup)
    assert (regroup.generation, regroup.members, regroup.newcomers) == (2, [0, 1, 2, 3], [3])
    assert regroup.agreement.version == 10
    assert controller.dead == []
    assert controller.live == [0, 1, 2, 3]


def test_who_has_not_caught_up_is_not_waited_for() -> None:
    """A death meanwhile brings the members together without it; it keeps its donor."""
    controller = without_3()
    answers(controller, [newcomer(3), hungry(3)])
    actions = answers(controller, [Left(rank=2), *reported([0, 1], 1, version=6)])
    (regroup,) = actions
    assert isinstance(regroup, Regroup)
    assert regroup.members == [0, 1]
    assert answers(controller, reported([3], -1, version=7)) == [Invite(generation=2)]


def test_a_newcomer_enters_with_the_next_failure_if_it_is_ready() -> None:
    """No second meeting is needed."""
    controller = without_3()
    answers(controller, [newcomer(3), hungry(3), *reported([3], -1, version=9)])
    regroup = only(answers(controller, [Left(rank=2), *reported([0, 1], 1, version=9)]))
    assert isinstance(regroup, Regroup)
    assert (regroup.members, regroup.newcomers) == ([0, 1, 3], [3])


def test_a_lost_donor_is_replaced() -> None:
    """With dp 3 there is another one; who was ready is not any more."""
    needs = Needs(dp=3, pp=1, microbatches=1)
    controller = begun(needs)
    answers(controller, [Left(rank=2), *reported([0, 1], 0), newcomer(2, needs), hungry(2)])
    answers(controller, reported([2], -1, version=3))
    actions = answers(controller, [Left(rank=0), *reported([1], 1, version=3)])
    assert [type(action) for action in actions] == [Regroup, Feed]
    assert actions[1] == Feed(donor=1, rank=2, address="host:2")
    assert isinstance(actions[0], Regroup)
    assert actions[0].members == [1]


def test_one_who_was_let_in_and_lost_its_donor_is_a_newcomer_again() -> None:
    """The others go on without it, and it is fed anew."""
    needs = Needs(dp=3, pp=1, microbatches=1)
    controller = begun(needs)
    answers(controller, [Left(rank=2), *reported([0, 1], 0), newcomer(2, needs), hungry(2)])
    answers(controller, [*reported([2], -1, version=3), *reported([0, 1], 1, version=3)])
    assert controller.live == [0, 1, 2]
    feed, regroup = answers(controller, [Left(rank=0), hungry(2), *reported([1], 2, version=3)])
    assert feed == Feed(donor=1, rank=2, address="host:2")
    assert isinstance(regroup, Regroup)
    assert (regroup.members, regroup.newcomers) == ([1], [])


def test_spares_wait_for_a_place() -> None:
    """The lowest free one goes to the first that came; a place of the dead is taken over by a spare."""
    controller = begun(SQUARE)
    assert answers(controller, [newcomer(5), newcomer(4)]) == []
    actions = answers(controller, [Left(rank=2)])
    assert actions == [Placed(rank=4, place=2)]
    assert answers(controller, [hungry(4)]) == [Feed(donor=0, rank=4, address="host:4")]
    regroup = only(answers(controller, reported([0, 1, 3], 0, version=1)))
    assert isinstance(regroup, Regroup)
    answers(controller, reported([4], -1, version=2))
    regroup = answers(controller, reported([0, 1, 3], 1, version=2))[0]
    assert isinstance(regroup, Regroup)
    assert (regroup.members, regroup.holders, regroup.newcomers) == ([0, 1, 2, 3], [0, 1, 4, 3], [2])
    assert [regroup.place_of(rank) for rank in (0, 4, 2)] == [0, 2, -1]


def test_a_newcomer_that_dies_leaves_its_place_to_a_spare() -> None:
    """And nobody meets for it."""
    controller = without_3()
    answers(controller, [newcomer(3), newcomer(7), hungry(3)])
    assert answers(controller, [Left(rank=3)]) == [Placed(rank=7, place=3)]
    assert controller.live == [0, 1, 2]


def test_a_newcomer_that_does_not_fit_is_sent_away_alone() -> None:
    """The job goes on."""
    controller = without_3()
    other = Needs(dp=2, pp=2, microbatches=7)
    (stop,) = controller.handle(newcomer(3, other))
    assert isinstance(stop, Stop)
    assert stop.rank == 3
    assert not controller.is_stopped


def test_without_a_peer_of_its_stage_there_is_nothing_to_wait_for() -> None:
    """A newcomer of a stage that is lost does not keep the job from ending."""
    controller = without_3()
    answers(controller, [newcomer(3), hungry(3)])
    (stop,) = answers(controller, [Left(rank=1), *reported([0, 2], 1, version=5)])
    assert isinstance(stop, Stop)
    assert "every worker of stage 1 is gone" in stop.reason


@pytest.mark.parametrize("seed", range(60))
def test_whatever_comes_and_goes_generations_go_up_and_places_are_held_once(seed: int) -> None:
    """Random deaths and newcomers: every regroup has one holder a place, all stages, and those who are in."""
    chance = random.Random(seed)
    needs = Needs(dp=3, pp=2, microbatches=2)
    controller = begun(needs)
    world = World(controller, chance, needs)
    for _ in range(150):
        world.step()
        if controller.is_stopped:
            return
    assert controller.generation > 0


class World:
    """Workers that answer as real ones would, in random order."""

    def __init__(self, controller: Controller, chance: random.Random, needs: Needs) -> None:
        self._controller = controller
        self._chance = chance
        self._needs = needs
        self._in = set(range(needs.dp * needs.pp))
        self._absent: set[int] = set()
        self._placed: set[int] = set()
        self._fed: set[int] = set()
        self._generation = 0
        self._version = 0
        self._is_meeting = False
        self._reported: set[int] = set()

    def step(self) -> None:
        """Let one thing happen."""
        moves = [self._die, self._come, self._hunger, self._catch_up, self._report, self._report]
        self._chance.choice(moves)()

    def _say(self, event: Joined | Hungry | Left | Reported) -> None:
        for action in self._controller.handle(event):
            self._hear(action)

    def _hear(self, action: Action) -> None:
        if isinstance(action, Placed):
            self._placed.add(action.rank)
        elif isinstance(action, Feed):
            assert action.donor in self._in
            self._fed.add(action.rank)
        elif isinstance(action, Invite):
            self._is_meeting = True
        elif isinstance(action, Regroup):
            assert action.generation > self._generation
            assert len(set(action.members)) == len(action.members) == len(action.holders)
            assert {place % self._needs.pp for place in action.members} == set(range(self._needs.pp))
            self._generation, self._in = action.generation, set(action.holders)
            self._is_meeting, self._reported = False, set()

    def _die(self) -> None:
        if self._chance.random() < 0.3:
            rank = self._chance.choice(sorted(self._in | self._placed))
            self._in.discard(rank)
            self._placed.discard(rank)
            self._fed.discard(rank)
            self._absent.add(rank)
            self._is_meeting = True
            self._say(Left(rank=rank))

    def _come(self) -> None:
        if self._absent:
            rank = self._chance.choice(sorted(self._absent))
            self._absent.discard(rank)
            self._say(newcomer(rank, self._needs))

    def _hunger(self) -> None:
        for rank in sorted(self._placed - self._fed):
            self._say(hungry(rank))

    def _catch_up(self) -> None:
        for rank in sorted(self._fed & self._placed - self._in):
            standing = Standing(version=self._version)
            self._say(Reported(rank=rank, generation=-1, standing=standing))

    def _report(self) -> None:
        waiting = sorted(self._in - self._reported)
        if self._is_meeting and waiting:
            rank = self._chance.choice(waiting)
            self._reported.add(rank)
            standing = Standing(version=self._version)
            self._say(Reported(rank=rank, generation=self._generation, standing=standing))


# --- wishes of whoever watches ----------------------------------------------------------------


def test_work_is_shared_out_as_whoever_watches_wants_it() -> None:
    """All are invited; in the generation that follows the slow one has less to do, wherever it sits."""
    controller = begun(SQUARE)
    assert controller.handle(Arranged(number=1, speeds={3: 0.5})) == [Invite(generation=0)]
    [regroup] = answers(controller, reported([0, 1, 2, 3], 0, version=7))
    assert isinstance(regroup, Regroup)
    assert (regroup.wish, regroup.moves) == (1, [])
    assert controller.problem().speeds == ((1.0, 1.0), (1.0, 0.5))


def test_measured_speeds_follow_the_rank_to_its_new_place() -> None:
    """Ranks 0 and 3 change places, and 3 is slow: so its new place is."""
    controller = begun(SQUARE)
    wish = Arranged(number=1, speeds={3: 0.5}, moves=[(0, 3), (3, 0)])
    assert controller.handle(wish) == [Invite(generation=0)]
    [regroup] = answers(controller, reported([0, 1, 2, 3], 0, version=7))
    assert isinstance(regroup, Regroup)
    assert regroup.holders == [3, 1, 2, 0]
    assert controller.problem().speeds == ((0.5, 1.0), (1.0, 1.0))


def test_a_wish_for_all_as_it_was_is_granted_too() -> None:
    """Nothing named in it: everybody is healthy again."""
    controller = begun(SQUARE)
    controller.handle(Arranged(number=1, speeds={3: 0.5}))
    answers(controller, reported([0, 1, 2, 3], 0, version=7))
    assert controller.handle(Arranged(number=2)) == [Invite(generation=1)]
    [regroup] = answers(controller, reported([0, 1, 2, 3], 1, version=9))
    assert isinstance(regroup, Regroup)
    assert regroup.wish == 2
    assert controller.problem() == controller.problem().healthy


def test_a_wish_that_comes_while_somebody_has_died_is_not_granted() -> None:
    """It was decided about a job that is another one by now; nor is an old one, heard again."""
    controller = begun(SQUARE)
    answers(controller, [Left(rank=3), *reported([0], 0, version=7)])
    assert controller.handle(Arranged(number=1, speeds={1: 0.5})) == []
    [regroup] = answers(controller, reported([1, 2], 0, version=7))
    assert isinstance(regroup, Regroup)
    assert regroup.wish == 0
    assert controller.handle(Arranged(number=1, speeds={1: 0.5})) == [Invite(generation=1)]
    answers(controller, reported([0, 1, 2], 1, version=7))
    assert controller.handle(Arranged(number=1, speeds={1: 0.5})) == []


def test_spares_that_wait_keep_no_wish_from_being_granted() -> None:
    """One that is on its way to a place does."""
    controller = begun(SQUARE)
    controller.handle(newcomer(17))
    assert controller.handle(Arranged(number=1, speeds={3: 0.5})) == [Invite(generation=0)]
    other = without_3()
    other.handle(newcomer(17))
    assert other.handle(Arranged(number=1, speeds={1: 0.5})) == []
