"""Who is named for a slowdown of a simulated job: exactly who was hurt, and why."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.diagnose.causes import Sign
from holdfast.diagnose.links import SlowLink
from holdfast.diagnose.naming import Evidence, name_suspects
from holdfast.diagnose.profiles import Profile
from holdfast.telemetry import StepFlag
from simulatedsteps import CAUSES, Harm, HarmKind, SimulatedJob, watch, watch_job

SHAPES = [(2, 1), (3, 1), (4, 1), (16, 1), (64, 1), (4, 4), (8, 2), (8, 4), (64, 8)]
OF_RANKS: list[HarmKind] = ["compute", "data", "gc", "saving", "work", "contention"]


@pytest.mark.parametrize(("ranks", "stages"), SHAPES)
@pytest.mark.parametrize("kind", OF_RANKS)
def test_the_hurt_rank_is_named_with_the_cause(kind: HarmKind, ranks: int, stages: int) -> None:
    """In jobs of 2 to 64 ranks with and without stages; all the others are its victims."""
    seed = ranks * 31 + stages * 7 + OF_RANKS.index(kind)
    hurt = seed % ranks
    job = SimulatedJob(ranks=ranks, stages=stages, seed=seed, harms=(Harm(kind=kind, ranks=(hurt,)),))
    watched = watch_job(job)
    assert watched.guilty == [([hurt], CAUSES[kind])], f"seed {seed}"
    suspect = watched.named[-1][0]
    assert suspect.victims == [rank for rank in range(ranks) if rank != hurt]
    times = [batch[0].duration_s for batch in job.run()]
    assert suspect.slowdown == pytest.approx(np.mean(times[60:]) / np.mean(times[:60]), rel=0.1)


@settings(max_examples=25)
@given(
    st.sampled_from(SHAPES[:-1]),
    st.sampled_from(OF_RANKS),
    st.integers(0, 2**16),
    st.floats(0.08, 0.9),
    st.sampled_from([0.005, 0.02, 0.04]),
)
def test_whoever_is_named_is_the_hurt_rank(
    shape: tuple[int, int], kind: HarmKind, seed: int, more_s: float, noise: float
) -> None:
    """Whatever the severity and the noise: nobody else, and with no other cause."""
    hurt = seed % shape[0]
    harm = Harm(kind=kind, ranks=(hurt,), more_s=more_s)
    job = SimulatedJob(ranks=shape[0], stages=shape[1], seed=seed, noise=noise, harms=(harm,), steps=110)
    watched = watch_job(job)
    assert watched.guilty in ([], [([hurt], CAUSES[kind])])
    assert watched.guilty or more_s < 0.12 or noise > 0.02


@pytest.mark.parametrize("ranks", [2, 5, 32])
def test_a_slow_network_is_nobodys_own_time(ranks: int) -> None:
    """All wait longer, none computes for longer: the network is named, no rank by itself."""
    watched = watch_job(SimulatedJob(ranks=ranks, harms=(Harm(kind="network"),)))
    assert watched.guilty == [(list(range(ranks)), "link")]
    assert watched.named[-1][0].confidence <= 0.5


@pytest.mark.parametrize("seed", range(6))
def test_noise_alone_names_nobody(seed: int) -> None:
    """Healthy jobs of any size and noise are left in peace."""
    job = SimulatedJob(
        ranks=[2, 4, 8, 16, 33, 64][seed], noise=[0.005, 0.02, 0.1][seed % 3], seed=seed, steps=300
    )
    watched = watch_job(job)
    assert watched.changes == []
    assert watched.named == []


def test_two_faults_on_two_ranks_are_two_suspects() -> None:
    """Each has its own cause, and neither is the other's victim."""
    harms = (Harm(kind="data", ranks=(1,)), Harm(kind="gc", ranks=(5,), more_s=0.12))
    watched = watch_job(SimulatedJob(ranks=8, harms=harms))
    assert sorted(watched.guilty) == [([1], "data_loading"), ([5], "garbage_collection")]
    assert all(suspect.victims == [0, 2, 3, 4, 6, 7] for suspect in watched.named[-1])


def test_two_ranks_with_one_cause_are_one_suspect() -> None:
    """Nothing that was seen tells them apart."""
    watched = watch_job(SimulatedJob(ranks=6, harms=(Harm(kind="compute", ranks=(0, 4)),)))
    assert watched.guilty == [([0, 4], "compute")]


@pytest.mark.parametrize("kind", ["saving", "data", "contention"])
def test_a_fault_of_all_ranks_names_them_all(kind: HarmKind) -> None:
    """Storage that is slow everywhere is not one unlucky rank's."""
    everybody = tuple(range(6))
    watched = watch_job(SimulatedJob(ranks=6, harms=(Harm(kind=kind, ranks=everybody),)))
    assert watched.guilty == [(list(everybody), CAUSES[kind])]
    assert watched.named[-1][0].victims == []


def test_the_lesser_of_two_faults_is_named_when_the_greater_is_gone() -> None:
    """What hides behind a worse fault comes to light afterwards."""
    harms = (
        Harm(kind="compute", ranks=(2,), more_s=0.6, until=100),
        Harm(kind="data", ranks=(3,), more_s=0.12, first=130),
    )
    watched = watch_job(SimulatedJob(ranks=4, harms=harms, steps=220))
    assert [[(s.ranks, s.cause) for s in each] for each in watched.named] == [
        [([2], "compute")],
        [([3], "data_loading")],
    ]


def test_a_ramp_is_named() -> None:
    """A rank that gets slower little by little is named as one that did so at once."""
    harm = Harm(kind="compute", ranks=(3,), more_s=0.4, ramp=60)
    watched = watch_job(SimulatedJob(ranks=8, harms=(harm,), steps=220))
    assert watched.named
    assert all([(s.ranks, s.cause) for s in each] == [([3], "compute")] for each in watched.named)


COMES_AND_GOES = Harm(kind="compute", ranks=(1,), more_s=0.6, period=60)


def test_a_fault_that_comes_and_goes_is_named_each_time() -> None:
    """Every time it is the same rank, with the same cause."""
    watched = watch_job(SimulatedJob(ranks=4, harms=(COMES_AND_GOES,), steps=260))
    assert len(watched.named) >= 3
    assert all([(s.ranks, s.cause) for s in each] == [([1], "compute")] for each in watched.named)


def test_a_fault_that_comes_again_is_held_against_healthy_steps_alone() -> None:
    """The second time it costs as much as the first, and no less for having been there before."""
    watched = watch_job(SimulatedJob(ranks=4, harms=(COMES_AND_GOES,), steps=260))
    first, second = (each[0].slowdown for each in watched.named[:2])
    assert second == pytest.approx(first, rel=0.1)


def test_a_fault_from_the_start_is_named_against_the_others() -> None:
    """Without healthy steps a rank is held against those who do the same."""
    job = SimulatedJob(ranks=8, stages=2, harms=(Harm(kind="data", ranks=(5,), first=0),))
    watched = watch_job(job)
    assert watched.changes == [], "it never was faster"
    settled = watched.lookout.settled()
    assert settled is not None
    suspects = name_suspects(Evidence(now=settled[1], layout=job.layout))
    assert [(suspect.ranks, suspect.cause) for suspect in suspects] == [([5], "data_loading")]


@pytest.mark.parametrize(
    "flag", [StepFlag.EVALUATION, StepFlag.CHECKPOINT, StepFlag.SKIPPED, StepFlag.COMPILE, StepFlag.FIRST]
)
def test_steps_with_something_else_in_them_never_count(flag: StepFlag) -> None:
    """Long evaluations and the like raise no alarm, and tell nothing about who is slow."""
    every = range(10, 260, 5)
    job = SimulatedJob(
        ranks=4, steps=260, flags=dict.fromkeys(every, int(flag)), longer_s=dict.fromkeys(every, 2.0)
    )
    assert watch_job(job).changes == []
    harm = Harm(kind="data", ranks=(2,), first=150)
    hurt = SimulatedJob(ranks=4, steps=260, flags=job.flags, longer_s=job.longer_s, harms=(harm,))
    watched = watch_job(hurt)
    assert watched.guilty == [([2], "data_loading")]
    assert watched.named[-1][0].slowdown == pytest.approx(0.48 / 0.33, rel=0.1)


def test_nobody_is_named_without_profiles() -> None:
    """Where nothing was measured nobody is to blame."""
    assert name_suspects(Evidence(now={})) == []


def test_a_rank_that_appeared_since_is_held_against_its_peers() -> None:
    """It has no healthy steps of its own, and is not blamed for what the others suffer from."""
    job = SimulatedJob(ranks=4, harms=(Harm(kind="gc", ranks=(1,)),))
    batches = [[step for step in batch if step.rank != 3 or step.step > 62] for batch in job.run()]
    watched = watch(batches)
    assert watched.guilty == [([1], "garbage_collection")]
    assert watched.named[-1][0].victims == [0, 2, 3]


def test_ranks_that_died_are_not_needed() -> None:
    """The others go on, and who is slow among them is named."""
    job = SimulatedJob(ranks=6, steps=240, harms=(Harm(kind="compute", ranks=(2,), first=150),))
    batches = [[step for step in batch if step.rank < 4 or step.step < 40] for batch in job.run()]
    assert watch(batches).guilty == [([2], "compute")]


def test_names_do_not_depend_on_the_order_of_ranks() -> None:
    """Batches come from nodes in any order."""
    job = SimulatedJob(ranks=8, harms=(Harm(kind="data", ranks=(6,)), Harm(kind="gc", ranks=(1,))))
    forward = watch(job.run())
    backward = watch(batch[::-1] for batch in job.run())
    assert forward.named == backward.named


@pytest.fixture
def waiting() -> Evidence:
    """Only waiting grew, by 20 ms of 100."""
    profile = Profile(
        rank=0, steps=40, duration_s=0.1, wait_s=0.06, data_s=0, gc_s=0, save_s=0, cpu_s=0.04, work=0
    )
    now = {rank: msgspec.structs.replace(profile, rank=rank) for rank in range(4)}
    healthy = {
        rank: msgspec.structs.replace(each, duration_s=0.08, wait_s=0.04) for rank, each in now.items()
    }
    return Evidence(now=now, healthy=healthy)


def test_a_process_that_is_kept_from_running_is_named_where_only_waiting_grew(waiting: Evidence) -> None:
    """Its threads that communicate are late; without such a sign, or with it on all, the network is named."""
    held = Sign(
        cause="cpu_contention", strength=0.5, evidence="it waited for a processor for 0.5 s per second"
    )
    (suspect,) = name_suspects(msgspec.structs.replace(waiting, signs={2: [held]}))
    assert (suspect.ranks, suspect.cause, suspect.victims) == ([2], "cpu_contention", [0, 1, 3])
    for signs in ({}, {rank: [held] for rank in range(4)}):
        (network,) = name_suspects(msgspec.structs.replace(waiting, signs=signs))
        assert network.cause == "link"


@pytest.mark.parametrize(("held_share", "named"), [(0.12, 4), (0.4, 0)])
def test_who_is_kept_from_running_is_blamed_for_what_that_can_cost(held_share: float, named: int) -> None:
    """Of 0.24 s, 0.12 s per second are too little: it was the rank that computed 0.19 s longer."""
    healthy = {
        rank: Profile(
            rank=rank,
            steps=100,
            duration_s=0.69,
            wait_s=0.08,
            data_s=0,
            gc_s=0,
            save_s=0,
            cpu_s=0.05,
            work=0,
        )
        for rank in range(8)
    }
    now = {
        rank: msgspec.structs.replace(each, duration_s=0.93, wait_s=0.32) for rank, each in healthy.items()
    }
    now[4] = msgspec.structs.replace(now[4], wait_s=0.13)
    held = Sign(cause="cpu_contention", strength=held_share, evidence="it waited for a processor")
    (suspect,) = name_suspects(Evidence(now=now, healthy=healthy, signs={0: [held]}))
    assert suspect.ranks == [named]


def test_a_mildly_slow_link_is_named_where_nobodys_own_time_grew(waiting: Evidence) -> None:
    """If it loses most of what the job does; not where a rank is slow, for whom its links would wait."""
    link = SlowLink(kind="link", ranks=[1, 2], link=(1, 2), slowdown=2.0, lost_share=0.15, evidence="slow")
    mild = msgspec.structs.replace(waiting, mild_links=[link])
    (named,) = name_suspects(mild)
    assert (named.link, named.ranks, named.confidence) == ((1, 2), [1, 2], 0.75)
    little = msgspec.structs.replace(link, lost_share=0.08)
    (nobody,) = name_suspects(msgspec.structs.replace(waiting, mild_links=[little]))
    assert (nobody.link, nobody.confidence) == (None, 0.4)
    slow = msgspec.structs.replace(mild.now[3], wait_s=0.02)
    (rank,) = name_suspects(msgspec.structs.replace(mild, now={**mild.now, 3: slow}))
    assert (rank.ranks, rank.link) == ([3], None)
