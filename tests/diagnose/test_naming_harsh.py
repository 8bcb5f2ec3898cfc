"""Who is named when what was measured is not what it should be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from holdfast.diagnose.naming import Evidence, name_suspects
from holdfast.diagnose.profiles import Profile
from holdfast.telemetry import Step, StepFlag
from simulatedsteps import Harm, SimulatedJob, watch, watch_job


def blind(job: SimulatedJob) -> Iterator[list[Step]]:
    """Yield a job's steps as an accelerator shows them: a call only queues, and waiting is not seen."""
    for batch in job.run():
        yield [replace(step, wait_s=0.0, cpu_s=0.05, flags=int(StepFlag.UNMEASURED)) for step in batch]


def test_a_part_that_grew_is_enough_where_waiting_was_not_measured() -> None:
    """Only one rank's loader takes longer: the others, whose steps take as long, are its victims."""
    job = SimulatedJob(ranks=4, harms=(Harm(kind="data", ranks=(1,)),))
    assert watch(blind(job)).guilty == [([1], "data_loading")]


def test_nobody_is_surely_blamed_where_waiting_was_not_measured() -> None:
    """One rank computes for longer, and nothing tells which: that is not everybody's fault."""
    job = SimulatedJob(ranks=4, harms=(Harm(kind="compute", ranks=(1,)),))
    watched = watch(blind(job))
    assert all(suspect.confidence <= 0.5 for suspect in watched.named[-1])


def renumbered(job: SimulatedJob, rank: int, behind: int) -> Iterator[list[Step]]:
    """Yield a job's steps of which one rank's numbers are behind the others'."""
    for batch in job.run():
        yield [replace(step, step=step.step - behind) if step.rank == rank else step for step in batch]


@pytest.mark.parametrize("behind", [2, -2, 30])
def test_a_rank_that_counts_its_steps_otherwise_is_named(behind: int) -> None:
    """Each counts from when it was first watched; whoever came later is as much to blame."""
    harm = Harm(kind="compute", ranks=(3,), first=560)
    job = SimulatedJob(ranks=4, first_step=500, steps=140, harms=(harm,))
    assert watch(renumbered(job, 3, behind)).guilty == [([3], "compute")]


def test_of_a_slow_rank_and_a_slow_network_the_worse_is_named() -> None:
    """Whichever explains most of what was lost."""
    for more_s, cause in ((0.3, "compute"), (0.05, "link")):
        harms = (Harm(kind="compute", ranks=(1,), more_s=more_s), Harm(kind="network", more_s=0.35 - more_s))
        watched = watch_job(SimulatedJob(ranks=4, harms=harms))
        assert [each for _, each in watched.guilty] == [cause]


def test_long_steps_are_told_in_seconds() -> None:
    """Evidence is read by people."""
    profile = Profile(
        rank=0, steps=9, duration_s=4.0, wait_s=0.1, data_s=0, gc_s=0, save_s=0, cpu_s=0, work=0
    )
    healthy = replace(profile, duration_s=2.0)
    peers = {1: replace(profile, rank=1, wait_s=2.0), 2: replace(profile, rank=2, wait_s=2.0)}
    before = {rank: replace(each, duration_s=2.1, wait_s=0.1) for rank, each in peers.items()}
    suspects = name_suspects(Evidence(now={0: profile} | peers, healthy={0: healthy} | before))
    assert [each.ranks for each in suspects] == [[0]]
    assert "e+" not in " ".join(suspects[0].evidence)
