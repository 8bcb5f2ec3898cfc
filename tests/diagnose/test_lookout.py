"""Lookout: when a slowdown is looked into, against what, and when it is over."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from msgspec.structs import replace

from holdfast.diagnose import lookout as lookout_module
from holdfast.diagnose.lookout import ENOUGH_S, ENOUGH_STEPS, HISTORY, MOST_LOOKS, TOO_LONG_S, Lookout
from holdfast.telemetry import Step
from simulatedsteps import Harm, SimulatedJob, watch, watch_job

HURT = Harm(kind="compute", ranks=(1,), more_s=0.3, first=60)


def test_a_slowdown_is_ripe_when_it_has_lasted_long_enough() -> None:
    """So many steps and so many seconds after it began, and not before."""
    lookout = Lookout()
    for batch in SimulatedJob(harms=(HURT,)).run():
        lookout.take(batch)
        if lookout.trouble is not None:
            steps = batch[0].step - lookout.trouble.since_step + 1
            lasted_s = batch[0].ended_s - lookout.trouble.since_s
            assert lookout.is_ripe() == (steps >= ENOUGH_STEPS and lasted_s >= ENOUGH_S)
    assert lookout.is_ripe()


def test_long_steps_need_not_be_many() -> None:
    """A job of a step in ten seconds is not left slow for minutes."""
    lookout = Lookout()
    ripe_after = None
    for batch in SimulatedJob(harms=(HURT,)).run():
        slow = [_stretched(step, 30.0) for step in batch]
        lookout.take(slow)
        if ripe_after is None and lookout.is_ripe():
            ripe_after = batch[0].step - HURT.first + 1
    assert ripe_after is not None
    assert ripe_after < ENOUGH_STEPS
    assert ripe_after * 18 >= TOO_LONG_S


def test_short_steps_are_given_time() -> None:
    """Hosts are asked once a second: twenty steps of a millisecond say nothing about them."""
    lookout = Lookout()
    since = []
    for batch in SimulatedJob(harms=(HURT,), steps=120).run():
        lookout.take([_stretched(step, 0.003) for step in batch])
        since.append(lookout.is_ripe())
    assert lookout.trouble is not None
    assert not any(since)


def _stretched(step: Step, factor: float) -> Step:
    times = ("duration_s", "ended_s", "wait_s", "data_s", "gc_s", "save_s", "cpu_s")
    return replace(step, **{name: factor * getattr(step, name) for name in times})


def test_a_case_is_closed_once() -> None:
    """Whoever was named is not named again while nothing changes."""
    watched = watch_job(SimulatedJob(harms=(HURT,), steps=400))
    assert len(watched.named) == 1
    assert [change.direction for change in watched.changes] == ["slow"]


def test_a_case_is_opened_again_when_it_gets_slower_still() -> None:
    """The second time, too, the job is held against how it was before the first."""
    harms = (HURT, Harm(kind="data", ranks=(2,), more_s=0.9, first=120))
    watched = watch_job(SimulatedJob(harms=harms, steps=200))
    assert [[(s.ranks, s.cause) for s in each] for each in watched.named] == [
        [([1], "compute")],
        [([2], "data_loading")],
    ]
    assert watched.lookout.trouble is not None
    assert watched.lookout.trouble.healthy[1].own_s == pytest.approx(0.31, rel=0.05)
    assert watched.named[1][0].slowdown == pytest.approx(1.23 / 0.33, rel=0.1)


def test_relief_closes_the_case() -> None:
    """A job that is as fast as before is in no trouble, whoever was to be named."""
    harm = Harm(kind="compute", ranks=(1,), more_s=0.3, first=60, until=110)
    watched = watch_job(SimulatedJob(harms=(harm,), steps=200))
    assert [change.direction for change in watched.changes] == ["slow", "relief"]
    assert watched.lookout.trouble is None
    assert not watched.lookout.is_ripe()


def test_a_slowdown_that_is_over_at_once_names_nobody() -> None:
    """Nor is it told: a bump of three seconds is nobody's concern."""
    harm = Harm(kind="compute", ranks=(1,), more_s=0.4, first=60, until=64)
    watched = watch_job(SimulatedJob(harms=(harm,), steps=120))
    assert watched.named == []
    assert watched.changes == []


def test_a_slowdown_that_is_over_when_it_could_be_told_is_not() -> None:
    """Its end is not known yet, but the last steps are as before."""
    harm = Harm(kind="compute", ranks=(1,), more_s=0.05, first=60, until=90)
    watched = watch_job(SimulatedJob(harms=(harm,), steps=200, noise=0.01))
    assert watched.changes == []


def test_a_slowdown_that_gets_milder_before_it_is_told_is_named_all_the_same() -> None:
    """It is told whole, with the level that it has come to, and there is somebody to be named."""
    worse = Harm(kind="compute", ranks=(1,), more_s=0.6, first=60, until=66)
    lasting = Harm(kind="compute", ranks=(1,), more_s=0.25, first=60)
    short = SimulatedJob(harms=(worse, lasting), steps=300).run()
    watched = watch([_stretched(step, 0.2) for step in batch] for batch in short)
    assert [change.direction for change in watched.changes] == ["slow", "relief"]
    assert watched.changes[-1].is_slow
    assert watched.changes[-1].after_s == pytest.approx(0.2 * 0.58, rel=0.1)
    assert watched.guilty == [([1], "compute")]


def test_a_restart_starts_afresh() -> None:
    """Another attempt is not held against the last one's speed, and trouble does not outlive its attempt."""
    lookout = Lookout()
    first = watch(SimulatedJob(harms=(HURT,)).run(), lookout=lookout)
    assert len(first.named) == 1
    slower = SimulatedJob(attempt=1, began_s=2000.0, noise=0.02, longer_s=dict.fromkeys(range(140), 0.5))
    second = watch(slower.run(), lookout=lookout)
    assert second.changes == []
    assert lookout.trouble is None
    assert lookout.healthy_s == pytest.approx(0.84, rel=0.05)


def test_late_steps_of_the_attempt_before_never_count() -> None:
    """A node that was slow to tell of the old attempt does not spoil the picture of the new one."""
    lookout = Lookout()
    watch(SimulatedJob().run(), lookout=lookout)
    hurt = SimulatedJob(attempt=1, began_s=2000.0, harms=(Harm(kind="data", ranks=(1,), first=60),))
    batches = list(hurt.run())
    late = [
        step
        for batch in SimulatedJob(harms=(Harm(kind="compute", ranks=(2,), more_s=3.0, first=0),)).run()
        for step in batch
        if 55 <= step.step < 80
    ]
    watched = watch([*batches[:50], late, *batches[50:]], lookout=lookout)
    assert watched.guilty == [([1], "data_loading")]
    assert lookout.trouble is not None
    assert lookout.trouble.healthy[2].steps <= 60


def test_another_cycle_starts_afresh() -> None:
    """When a step is taken to be something else, its length tells nothing against what it was before."""
    before = SimulatedJob(steps=100, cycle=1)
    after = SimulatedJob(
        steps=100, cycle=2, first_step=100, began_s=1100.0, longer_s=dict.fromkeys(range(200), 0.6)
    )
    watched = watch([*before.run(), *after.run()])
    assert watched.changes == []
    assert watched.lookout.healthy_s == pytest.approx(0.94, rel=0.05)


def test_a_job_that_is_as_it_was_is_held_against_that() -> None:
    """A mild slowdown, a few steps after it was arranged as before, is told and named."""
    lookout = Lookout()
    for batch in SimulatedJob(steps=100, cycle=1).run():
        lookout.take(batch)
    memory = lookout.remember()
    between = SimulatedJob(
        steps=60, cycle=2, first_step=100, began_s=1100.0, longer_s=dict.fromkeys(range(200), 0.6)
    )
    for batch in between.run():
        lookout.take(batch)
    harm = Harm(kind="compute", ranks=(1,), more_s=0.08, first=175)
    first, *others = SimulatedJob(steps=100, cycle=3, first_step=160, began_s=1200.0, harms=(harm,)).run()
    lookout.take(first)
    lookout.recall(memory)
    assert lookout.healthy_s == pytest.approx(0.34, rel=0.05)
    watched = watch(others, lookout=lookout)
    assert [change.direction for change in watched.changes] == ["slow"]
    assert [ranks for ranks, _ in watched.guilty] == [[1]]


def test_a_change_of_cycle_within_one_batch_starts_afresh() -> None:
    """Steps of both cycles may come in the same second; none of the old ones counts."""
    before = SimulatedJob(steps=100, cycle=1)
    after = SimulatedJob(
        steps=100, cycle=2, first_step=100, began_s=1100.0, longer_s=dict.fromkeys(range(200), 0.6)
    )
    batches = [*before.run(), *after.run()]
    mixed = [step for batch in batches[80:120] for step in batch]
    watched = watch([*batches[:80], mixed, *batches[120:]])
    assert watched.changes == []


@pytest.mark.parametrize("size", [1, 7, 40])
def test_the_size_of_batches_does_not_matter(size: int) -> None:
    """The same changes are told, and the same rank is named, however many steps come at once."""
    batches = list(SimulatedJob(ranks=4, harms=(HURT,)).run())
    joined = [
        [step for batch in batches[at : at + size] for step in batch] for at in range(0, len(batches), size)
    ]
    watched = watch(joined)
    assert watched.changes == watch(batches).changes
    assert watched.guilty == [([1], "compute")]


def test_doubled_batches_and_late_nodes_do_no_harm() -> None:
    """The guilty is named all the same."""
    chance = random.Random(4)
    batches = list(SimulatedJob(ranks=4, harms=(HURT,)).run())
    late: list[tuple[float, list[Step]]] = []
    for number, batch in enumerate(batches):
        late.append((number, batch[:2]))
        late.append((number + chance.uniform(0, 5), batch[2:]))
        if number % 10 == 0:
            late.append((number + 1.5, batch))
    late.sort(key=lambda each: each[0])
    watched = watch(batch for _, batch in late)
    assert [change.direction for change in watched.changes] == ["slow"]
    assert watched.guilty == [([1], "compute")]


def test_a_settled_job_is_told_once() -> None:
    """What its steps are made of, when there have been enough of them."""
    lookout, told = Lookout(), []
    for batch in SimulatedJob(ranks=3, steps=200).run():
        lookout.take(batch)
        found = lookout.settled()
        if found:
            told.append((batch[0].step, found))
    assert len(told) == 1
    step, (before, after) = told[0]
    assert lookout_module.SETTLED_STEPS - 2 <= step <= lookout_module.SETTLED_STEPS + 2
    assert sorted(before) == sorted(after) == [0, 1, 2]


def test_memory_is_bounded() -> None:
    """Ten thousand steps leave as much behind as a few hundred."""
    lookout = Lookout()
    at_s = 0.0
    for number in range(10_000):
        at_s += 0.1 + 0.001 * (number % 7)
        step = Step(rank=0, step=number, ended_s=at_s, duration_s=0.1 + 0.001 * (number % 7))
        lookout.take([step])
    assert len(lookout._steps[0]) == HISTORY
    assert len(lookout._ends) == HISTORY
    assert len(lookout._jobs._open) == 0


def test_ten_thousand_ranks_are_looked_at() -> None:
    """One of them is slow, and is named."""
    harm = Harm(kind="data", ranks=(7777,), first=18, more_s=0.4)
    watched = watch_job(SimulatedJob(ranks=10_000, steps=27, harms=(harm,)))
    assert watched.guilty == [([7777], "data_loading")]
    assert len(watched.named[-1][0].victims) == 9999


def test_steps_of_groups_are_those_that_were_asked_for() -> None:
    """From one number on until before another, timed ones alone."""
    lookout = Lookout()
    for batch in SimulatedJob(ranks=2, steps=30).run():
        lookout.take(batch)
    found = lookout.steps_of(since=10, until=15)
    assert {rank: [step.step for step in mine] for rank, mine in found.items()} == {
        0: [10, 11, 12, 13, 14],
        1: [10, 11, 12, 13, 14],
    }


def test_the_steps_before_a_slowdown_are_there_when_somebody_is_to_be_named() -> None:
    """Also where a step takes five milliseconds: groups are held against what they took before."""
    lookout = Lookout()
    for batch in SimulatedJob(ranks=2, steps=900, harms=(Harm(kind="network", first=150),)).run():
        lookout.take([_stretched(step, 0.015) for step in batch])
        if lookout.is_ripe():
            break
    assert lookout.trouble is not None
    before = lookout.trouble.healthy_steps
    assert sorted(before) == [0, 1]
    assert all(len(mine) > 50 for mine in before.values())


def test_who_could_not_be_named_is_looked_for_again_at_twice_as_much() -> None:
    """So often and no more: then what is known has to do."""
    lookout = Lookout()
    ripe_at = []
    for batch in SimulatedJob(harms=(HURT,), steps=200).run():
        lookout.take(batch)
        if lookout.is_ripe():
            ripe_at.append(batch[0].step)
            if not lookout.look_again():
                lookout.close_case()
    assert lookout.trouble is not None
    since = lookout.trouble.since_step
    assert len(ripe_at) == MOST_LOOKS
    assert [step - since + 1 for step in ripe_at[1:]] == [2 * ENOUGH_STEPS, 4 * ENOUGH_STEPS]
    assert lookout.trouble.is_named


def test_where_nobody_in_particular_was_named_what_comes_is_looked_into_as_well() -> None:
    """Again and again, and each time at what came since; until somebody is named."""
    lookout = Lookout()
    ripe_at = []
    for batch in SimulatedJob(harms=(HURT,), steps=240).run():
        lookout.take(batch)
        if lookout.is_ripe():
            ripe_at.append(batch[0].step)
            if len(ripe_at) < 4:
                lookout.look_later()
                assert lookout.trouble is not None
                assert lookout.trouble.since_step == batch[0].step + 1
                assert lookout.trouble.is_named
            else:
                assert all(
                    profile.steps == ripe_at[-1] - ripe_at[-2] for profile in lookout.profiles().values()
                )
                lookout.close_case()
    assert len(ripe_at) == 4
    assert [b - a for a, b in pairwise(ripe_at)] == [4 * ENOUGH_STEPS] * 3
