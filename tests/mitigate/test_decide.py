"""When it is acted, and when not: looks in, decisions out."""

from __future__ import annotations

import pytest

from holdfast.mitigate.condition import Arrangement, Condition, SlowLink
from holdfast.mitigate.decide import Mitigator
from holdfast.mitigate.look import Decision, Look
from holdfast.mitigate.model import Model, Replicas, Shape, Stages
from holdfast.mitigate.prices import Prices

SHAPE = Shape(dp=4, microbatches=8)
GRID = Shape(dp=2, pp=4, microbatches=8, data_share=0.1)
SLOW = Condition(speeds=((1, 0.5),))
LINK = Condition(links=(SlowLink(1, 5, 4.0),))


class Job:
    """A job that is as slow as its model says, unless told otherwise; a second per healthy step."""

    def __init__(self, model: Model, prices: dict[str, float] | None = None, **options: object) -> None:
        self.model = model
        known = prices or {"replan": 4.0, "exchange": 10.0, "restart": 100.0}
        self.prices = known
        self.mitigator = Mitigator(model, Prices(known), **options)  # type: ignore[arg-type]
        self.arrangement = Arrangement()
        self.acts: list[Decision] = []
        self.told: list[Decision] = []
        self.lost_s = 0.0

    def live(
        self, steps: int, known: Condition, truth: Condition | None = None, *, is_unclear: bool = False
    ) -> None:
        """Make steps, and do what is decided."""
        for _ in range(steps):
            seconds = self.model.slowdown(known if truth is None else truth, self.arrangement)
            self.lost_s += seconds - 1
            look = Look(
                step=0, steps=1, seconds=seconds, healthy_s=1.0, condition=known, is_unclear=is_unclear
            )
            decision = self.mitigator.see(look)
            if decision is None:
                continue
            if decision.is_dry:
                self.told.append(decision)
                continue
            self.acts.append(decision)
            self.arrangement = decision.arrangement
            self.lost_s += self.prices[decision.deed]
            self.mitigator.done(self.prices[decision.deed])

    @property
    def levels(self) -> list[str]:
        return [act.level for act in self.acts]


def test_healthy_job_is_left_alone() -> None:
    """Nothing is known to be wrong, however slow it is."""
    job = Job(Replicas(SHAPE))
    job.live(1000, Condition(), truth=SLOW)
    assert job.acts == []


def test_acts_when_its_price_is_lost() -> None:
    """Price 4 and the way back 4: at a second per step they are lost after 8, and not before."""
    job = Job(Replicas(SHAPE))
    job.live(7, SLOW)
    assert job.acts == []
    job.live(1, SLOW)
    assert job.levels == ["S2"]
    assert job.arrangement == Arrangement(reckoned=SLOW.speeds)
    assert (job.acts[0].lost_s, job.acts[0].saved_s) == (8, 6)


def test_goes_back_when_the_fault_is_gone() -> None:
    """Once everybody is well again the work is shared out evenly, at once."""
    job = Job(Replicas(SHAPE))
    job.live(30, SLOW)
    job.live(1, Condition())
    assert job.levels == ["S2", "undo"]
    assert job.arrangement.is_original
    job.live(200, Condition())
    assert job.mitigator.incident is None


def test_nearly_well_is_well_enough_to_go_back() -> None:
    """Once an even share is as fast as any other, nobody is planned for, and nothing is left behind."""
    job = Job(Replicas(SHAPE))
    job.live(30, SLOW)
    job.live(30, Condition(speeds=((1, 0.9),)))
    assert job.levels == ["S2", "undo"]
    assert job.arrangement.is_original
    job.live(1, Condition())
    assert job.mitigator.incident is None


def test_short_trouble_is_waited_out() -> None:
    """What is over before the price is reached costs nothing but itself."""
    job = Job(Replicas(SHAPE))
    job.live(6, SLOW)
    job.live(100, Condition())
    assert job.acts == []
    assert job.mitigator.incident is None


def test_goes_up_a_level_while_the_residual_loss_goes_on() -> None:
    """A spare, and 0.25 of a step lost after S2: in the end a restart without the slow rank pays."""
    job = Job(Replicas(SHAPE, spares=1))
    job.live(600, SLOW)
    assert job.levels == ["S2", "S4"]
    assert job.arrangement.without == (1,)
    assert job.lost_s <= 2 * 100 + 2 * 8


def test_nobody_is_sent_away_without_a_spare() -> None:
    """A machine that has gone does not come back when its fault ends."""
    job = Job(Replicas(SHAPE))
    job.live(5000, SLOW)
    assert job.levels == ["S2"]


def test_slow_link_is_moved_and_stays_there() -> None:
    """Places are as good as each other: when the link is well again there is nothing to win."""
    job = Job(Stages(GRID))
    job.live(60, LINK)
    assert job.levels == ["S3"]
    assert job.arrangement.holders
    job.live(100, Condition())
    assert job.levels == ["S3"]
    assert job.mitigator.incident is None


def test_compound_trouble_ends_as_it_began() -> None:
    """A link, then a worker, then neither: shares and places are what they were."""
    both = Condition(speeds=SLOW.speeds, links=LINK.links)
    job = Job(Stages(GRID))
    job.live(60, LINK)
    job.live(100, both)
    assert job.levels == ["S3", "S2"]
    job.live(20, Condition())
    assert job.levels == ["S3", "S2", "undo"]
    assert job.arrangement.is_original


def test_what_does_not_help_is_taken_back() -> None:
    """The wrong rank was blamed: nothing gets faster, so it is as before, and has to promise more."""
    job = Job(Replicas(SHAPE))
    wrong = Condition(speeds=((2, 0.5),))
    job.live(60, wrong, truth=SLOW)
    assert job.levels[:2] == ["S2", "undo"]
    assert job.acts[1].is_rollback
    assert job.acts[1].arrangement.is_original


BOTH = Condition(speeds=((1, 0.5), (2, 0.4)))


def _acted(job: Job) -> int:
    """Live until something was done about rank 1; return how many steps that took."""
    for step in range(100):
        if job.acts:
            return step
        job.live(1, SLOW)
    raise AssertionError("nothing was done")


def test_what_begins_while_a_deed_is_on_trial_is_not_held_against_it() -> None:
    """It had shown what it is worth by then."""
    job = Job(Replicas(SHAPE))
    _acted(job)
    job.live(7, SLOW)
    job.live(20, SLOW, truth=BOTH)
    assert job.levels == ["S2"]
    assert job.mitigator.verdict is not None
    assert job.mitigator.verdict.is_enough


def test_a_deed_is_not_judged_while_somebody_is_about_to_be_named() -> None:
    """Then it is somebody else's fault, or there is no excuse."""
    for known, levels in ((BOTH, ["S2", "S2"]), (SLOW, ["S2", "undo"])):
        job = Job(Replicas(SHAPE))
        _acted(job)
        job.live(20, SLOW, truth=BOTH, is_unclear=True)
        assert job.levels == ["S2"]
        job.live(20, known, truth=BOTH)
        assert job.levels[:2] == levels


def test_what_did_not_help_one_may_help_another() -> None:
    """In the same incident, as soon as it would in one of its own."""
    fresh = Job(Replicas(SHAPE))
    price = _acted(fresh)
    job = Job(Replicas(SHAPE))
    wrong = Condition(speeds=((2, 0.5),))
    job.live(60, wrong, truth=SLOW)
    assert job.levels[:2] == ["S2", "undo"]
    before = len(job.acts)
    job.live(price + 2, SLOW)
    assert [act.level for act in job.acts[before:]] == ["S2"]


def test_harm_of_a_lying_detector_is_bounded() -> None:
    """Always the same wrong name, for a thousand times its price: a handful of attempts."""
    job = Job(Replicas(SHAPE))
    job.live(4000, Condition(speeds=((2, 0.5),)), truth=SLOW)
    assert job.levels.count("S2") <= 5


def test_flapping_trouble_is_acted_upon_less_and_less() -> None:
    """Every 30 steps on, 30 off: soon it acts every other time only."""
    job = Job(Replicas(SHAPE))
    for _ in range(20):
        job.live(30, SLOW)
        job.live(30, Condition())
    assert job.levels.count("S2") <= 10


def test_known_durations_make_it_act_earlier_within_the_bound() -> None:
    """Incidents lasted for hours before: now it acts as soon as its price is lost, not when it is saved."""
    model = Replicas(Shape(dp=4, microbatches=8))
    job = Job(model)
    for _ in range(20):
        job.mitigator.lasting.note(("rank",), 7200.0)
    job.live(9, SLOW)
    assert job.levels == ["S2"]
    assert job.acts[0].lost_s >= 8 > job.acts[0].saved_s


def test_short_lives_make_it_wait_within_the_bound() -> None:
    """Incidents of this age were about to end before: it waits until waiting would break the bound."""
    job = Job(Replicas(SHAPE))
    for _ in range(50):
        job.mitigator.lasting.note(("rank",), 24.5)
    job.live(12, SLOW)
    assert job.acts == []
    job.live(10, SLOW)
    assert job.levels == ["S2"]


def test_onset_counts_from_when_it_was() -> None:
    """What was lost before anybody knew is part of the bill, and of what acting would have saved."""
    mitigator = Mitigator(Replicas(SHAPE), Prices({"replan": 4.0}))
    look = Look(step=20, steps=1, seconds=2.0, healthy_s=1.0, condition=SLOW, since_s=40.0, lost_s=20.0)
    decision = mitigator.see(look)
    assert decision is not None
    assert decision.level == "S2"
    assert decision.lost_s == pytest.approx(21.0)
    assert decision.saved_s == pytest.approx(0.75 * 21)


def test_what_is_not_allowed_is_told_once() -> None:
    """A dry run says what would have been done, and does not do it."""
    job = Job(Replicas(SHAPE), allowed=())
    job.live(200, SLOW)
    assert job.acts == []
    assert [each.level for each in job.told] == ["S2"]


def test_refused_decision_comes_again() -> None:
    """Whoever heard of it too late did nothing; it is still right."""
    job = Job(Replicas(SHAPE))
    job.live(7, SLOW)
    look = Look(step=0, steps=1, seconds=2.0, healthy_s=1.0, condition=SLOW)
    first = job.mitigator.see(look)
    assert first is not None
    assert job.mitigator.see(look) is None
    job.mitigator.refused()
    again = job.mitigator.see(look)
    assert again is not None
    assert again.arrangement == first.arrangement


def test_ledger_agrees_with_the_clock() -> None:
    """What the incident says was lost is what was lost, pauses included."""
    job = Job(Replicas(SHAPE))
    job.live(40, SLOW)
    incident = job.mitigator.incident
    assert incident is not None
    assert incident.lost_s == pytest.approx(job.lost_s)
    assert incident.paid_s == pytest.approx(4.0)


def test_a_person_takes_back_what_was_done() -> None:
    """All is as it was at once, and nothing is done about the same rank while its trouble lasts."""
    job = Job(Replicas(SHAPE))
    job.live(30, SLOW)
    taken = job.mitigator.take_back()
    assert taken is not None
    assert (taken.level, taken.arrangement, taken.before) == ("undo", Arrangement(), job.arrangement)
    assert (taken.is_asked, taken.is_dry) == (True, False)
    assert taken.gain == pytest.approx(-0.75)
    assert job.mitigator.take_back() is None, "it is being carried out"
    job.arrangement = taken.arrangement
    job.mitigator.done(4.0)
    assert job.mitigator.take_back() is None, "nothing is in force any more"
    job.live(1000, Condition(speeds=((1, 0.4),)))
    assert job.levels == ["S2"]
    job.live(50, Condition())
    job.live(100, SLOW)
    assert job.levels == ["S2", "S2"], "the next trouble is another one"


def test_what_a_person_took_back_may_be_done_again_when_it_is_allowed_again() -> None:
    """That is what the same person says by allowing something."""
    job = _taken_back()
    job.mitigator.allow_again()
    job.live(100, SLOW)
    assert job.levels == ["S2", "S2"]


def test_another_culprit_is_acted_upon_although_one_is_to_be_let_be() -> None:
    """What a person knew of was the one."""
    job = _taken_back()
    job.live(200, Condition(speeds=((1, 0.5), (2, 0.5))))
    assert job.levels[:2] == ["S2", "S2"]


def test_nothing_is_taken_back_of_a_job_that_is_as_it_was() -> None:
    """Nor brought back who has left."""
    job = Job(Replicas(SHAPE))
    assert job.mitigator.take_back() is None
    job.mitigator.arrangement = Arrangement(without=(1,))
    assert job.mitigator.take_back() is None


def test_places_are_taken_back_too_and_the_link_is_let_be() -> None:
    """After the exchange nobody can tell how the link is; when it is slow again it is no news."""
    job = Job(Stages(GRID))
    job.live(60, LINK)
    job.live(20, Condition())
    assert job.mitigator.incident is None
    taken = job.mitigator.take_back()
    assert taken is not None
    assert (taken.deed, taken.arrangement) == ("exchange", Arrangement())
    job.arrangement = taken.arrangement
    job.mitigator.done(10.0)
    job.live(200, LINK)
    assert job.levels == ["S3"]


def _taken_back() -> Job:
    job = Job(Replicas(SHAPE))
    job.live(30, SLOW)
    taken = job.mitigator.take_back()
    assert taken is not None
    job.arrangement = taken.arrangement
    job.mitigator.done(4.0)
    job.live(100, SLOW)
    assert job.levels == ["S2"]
    return job


def test_nothing_is_done_while_actions_are_paused() -> None:
    """Neither are old places taken again, nor is taken back what does not help; afterwards they are."""
    job = Job(Stages(GRID), goes_home=True)
    job.live(60, LINK)
    assert job.levels == ["S3"]
    job.mitigator.allowed = frozenset()
    job.live(50, Condition())
    assert job.levels == ["S3"]
    job.mitigator.allowed = frozenset({"undo", "S3"})
    job.live(5, Condition())
    assert job.levels == ["S3", "undo"]
    assert job.arrangement.is_original


def test_what_does_not_help_stays_while_actions_are_paused() -> None:
    """A person wants to look at it as it is."""
    job = Job(Replicas(SHAPE))
    wrong = Condition(speeds=((2, 0.5),))
    while not job.acts:
        job.live(1, wrong, truth=SLOW)
    job.mitigator.allowed = frozenset()
    job.live(60, wrong, truth=SLOW)
    assert job.levels == ["S2"]
    assert job.mitigator.verdict is not None
    assert not job.mitigator.verdict.is_enough
