"""find_imbalance: ranks and stages with more to do than others from the start on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.diagnose.imbalance import find_imbalance, find_lasting_imbalance
from holdfast.diagnose.layout import Layout
from holdfast.diagnose.lookout import Lookout
from holdfast.diagnose.profiles import Profile
from simulatedsteps import Harm, HarmKind, SimulatedJob, watch_job


def profiles_of_job(job: SimulatedJob) -> dict[int, Profile]:
    """Return what its steps are made of when it has settled."""
    watched = watch_job(job)
    assert watched.changes == []
    settled = watched.lookout.settled()
    assert settled is not None
    return dict(settled[1])


def from_start(kind: HarmKind, *ranks: int, more_s: float = 0.15) -> Harm:
    """Return a harm that was always there."""
    return Harm(kind=kind, ranks=ranks, more_s=more_s, first=0)


@pytest.mark.parametrize("size", [2, 3, 8, 64])
def test_a_rank_with_more_input_makes_the_others_wait(size: int) -> None:
    """It is named with the cause, and all others are its victims."""
    job = SimulatedJob(ranks=size, harms=(from_start("work", 1),))
    suspects = find_imbalance(profiles_of_job(job), job.layout)
    assert [(each.ranks, each.cause) for each in suspects] == [([1], "input_imbalance")]
    assert suspects[0].victims == [rank for rank in range(size) if rank != 1]
    assert suspects[0].slowdown == pytest.approx(0.48 / 0.33, rel=0.1)


def test_several_ranks_are_no_victims_of_each_other() -> None:
    """Those of one cause are one suspect."""
    job = SimulatedJob(ranks=8, harms=(from_start("data", 1, 6), from_start("gc", 3)))
    suspects = find_imbalance(profiles_of_job(job), job.layout)
    assert sorted((each.ranks, each.cause) for each in suspects) == [
        ([1, 6], "data_loading"),
        ([3], "garbage_collection"),
    ]
    assert all(each.victims == [0, 2, 4, 5, 7] for each in suspects)


def test_a_stage_with_more_to_do_is_told_as_one() -> None:
    """All of its ranks need longer: that is how the model was cut, and none of them is slow."""
    job = SimulatedJob(ranks=8, stages=4, harms=(from_start("compute", 2, 6),))
    suspects = find_imbalance(profiles_of_job(job), job.layout)
    assert [(each.ranks, each.cause) for each in suspects] == [([2, 6], "stage_imbalance")]
    assert suspects[0].victims == [0, 1, 3, 4, 5, 7]
    assert "stage 2 (ranks 2 and 6)" in suspects[0].evidence[0]


def test_two_heavy_stages_are_both_told() -> None:
    """Neither is the other's victim."""
    job = SimulatedJob(ranks=8, stages=4, harms=(from_start("compute", 0, 3, 4, 7),))
    suspects = find_imbalance(profiles_of_job(job), job.layout)
    assert sorted(each.ranks for each in suspects) == [[0, 4], [3, 7]]
    assert all(each.victims == [1, 2, 5, 6] for each in suspects)


def test_a_slow_rank_of_a_stage_is_not_the_stage() -> None:
    """The other pipelines' ranks of the same stage show what is usual."""
    job = SimulatedJob(ranks=8, stages=2, harms=(from_start("data", 3),))
    suspects = find_imbalance(profiles_of_job(job), job.layout)
    assert [(each.ranks, each.cause) for each in suspects] == [([3], "data_loading")]


def test_a_slow_rank_that_was_given_less_to_do_is_not_its_stage() -> None:
    """It needs no longer than its peer in the end, but would with as much to do."""
    given = {0: (0.6, 24), 1: (0.6, 24), 2: (0.6, 24), 3: (0.7, 18), 4: (0.6, 24), 5: (0.75, 30)}
    profiles = {
        rank: replace(a_profile(rank, own_s), work=work, is_planned=True)
        for rank, (own_s, work) in given.items()
    }
    layout = Layout(kind="named", roles={rank: rank % 2 for rank in given})
    assert find_imbalance(profiles, layout) == []
    del profiles[0], profiles[1]
    assert find_imbalance(profiles, layout) == []


@settings(max_examples=12)
@given(st.integers(2, 32), st.integers(0, 1000), st.sampled_from([0.01, 0.05, 0.15]))
def test_an_even_job_is_left_in_peace(size: int, seed: int, noise: float) -> None:
    """Noise is no imbalance."""
    job = SimulatedJob(ranks=size, seed=seed, noise=noise, steps=90)
    settled = watch_job(job).lookout.settled()
    assert settled is not None
    assert find_imbalance(settled[1], job.layout) == []


def test_what_costs_little_is_not_worth_a_word() -> None:
    """A tenth of a step is below it."""
    job = SimulatedJob(ranks=4, harms=(from_start("compute", 1, more_s=0.03),))
    assert find_imbalance(profiles_of_job(job), job.layout) == []


def a_profile(rank: int, own_s: float) -> Profile:
    """Return a profile of a step of one second."""
    return Profile(
        rank=rank, steps=9, duration_s=1.0, wait_s=1.0 - own_s, data_s=0, gc_s=0, save_s=0, cpu_s=0, work=0
    )


def test_a_rank_that_does_all_the_work_is_named() -> None:
    """The others do nothing but wait; that is nothing to divide by."""
    layout = Layout(kind="unknown", roles={0: 0, 1: 0})
    suspects = find_imbalance({0: a_profile(0, 1.0), 1: a_profile(1, 0.0)}, layout)
    assert [each.ranks for each in suspects] == [[0]]


def test_what_may_be_chance_is_not_told() -> None:
    """A rank that seems to need twice as long, in a few steps of which no two were alike."""
    layout = Layout(kind="unknown", roles=dict.fromkeys(range(4), 0))
    profiles = {rank: a_profile(rank, 0.8 if rank == 2 else 0.4) for rank in range(4)}
    assert [each.ranks for each in find_imbalance(profiles, layout)] == [[2]]
    unsure = {rank: replace(each, error_s=0.1) for rank, each in profiles.items()}
    assert find_imbalance(unsure, layout) == []


def test_ranks_that_the_layout_does_not_know_belong_to_no_stage() -> None:
    """They are held against each other alone."""
    layout = Layout(kind="chain", roles={0: 0, 1: 1})
    found = find_imbalance({0: a_profile(0, 0.3), 1: a_profile(1, 0.3), 7: a_profile(7, 0.9)}, layout)
    assert found == []


def test_nobody_is_named_where_there_is_nobody() -> None:
    """Neither without ranks nor with one."""
    assert find_imbalance({}, Layout(kind="unknown", roles={})) == []
    assert find_imbalance({0: a_profile(0, 1.0)}, Layout(kind="unknown", roles={0: 0})) == []


def test_thousands_of_ranks_are_compared() -> None:
    """Half of ten thousand with more to do than the other half."""
    profiles = {rank: a_profile(rank, 0.9 if rank % 2 else 0.3) for rank in range(10_000)}
    layout = Layout(kind="unknown", roles=dict.fromkeys(profiles, 0))
    suspects = find_imbalance(profiles, layout)
    assert [len(each.ranks) for each in suspects] == [5000]


@pytest.mark.parametrize(("first", "told"), [(0, [[2, 6]]), (45, [])])
def test_what_was_not_there_from_the_start_on_is_a_fault_and_no_imbalance(
    first: int, told: list[list[int]]
) -> None:
    """It is for the detector to notice; a stage that only got slow is not one with more to do."""
    harm = Harm(kind="compute", ranks=(2, 6), more_s=0.15, first=first)
    lookout = Lookout()
    job = SimulatedJob(ranks=8, stages=4, harms=(harm,), steps=90)
    settled = None
    for batch in job.run():
        lookout.take(batch)
        lookout.trouble = None  # As if it had not been noticed.
        settled = settled or lookout.settled()
    assert settled is not None
    assert [each.ranks for each in find_lasting_imbalance(*settled, job.layout)] == told
