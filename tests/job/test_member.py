"""Without a hub a worker trains with those that its launcher started, and no failure is survived."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.commit import Agreement, Standing
from holdfast.errors import TrainingLostError
from holdfast.job.lone import LoneMember
from holdfast.job.member import join
from holdfast.membership import Joined, Needs, Reported
from holdfast.plan.ops import parse_schedule

NEEDS = Needs(dp=1, pp=1, microbatches=2)


@pytest.fixture
def member() -> LoneMember:
    """The only worker of a job."""
    made = join(Joined(rank=0, needs=NEEDS), session=0, env={})
    assert isinstance(made, LoneMember)
    return made


def reported(generation: int, version: int = 0) -> Reported:
    """Return where the worker stands."""
    return Reported(rank=0, generation=generation, standing=Standing(version=version))


def test_first_generation_has_everybody(member: LoneMember) -> None:
    """All ranks, the version that they are at, and a schedule of their shape."""
    regroup = member.regroup(reported(-1, version=7), is_wanted=True)
    assert (regroup.generation, regroup.members) == (0, [0])
    assert regroup.agreement == Agreement(version=7)
    schedule = parse_schedule(regroup.schedule)
    assert (schedule.dp, schedule.pp, schedule.microbatches) == (1, 1, 2)
    assert not member.survives


def test_wanted_generation_follows_and_a_loss_ends_the_training(member: LoneMember) -> None:
    """What all scripts ask for is done; what a failure makes necessary is not."""
    assert member.regroup(reported(4), is_wanted=True).generation == 5
    lost = msgspec.structs.replace(reported(5), lost="Connection reset by peer")
    with pytest.raises(
        TrainingLostError, match=r"nobody but `holdfast run` lets .* \(Connection reset by peer\)"
    ):
        member.regroup(lost, is_wanted=False)


def test_stores_of_generations_and_names_are_apart(member: LoneMember) -> None:
    """A value of a generation of the past is not found in the next."""
    member.store(0, "a").set("key", "old")
    member.store(1, "a").set("key", "new")
    member.store(0, "b").set("key", "other")
    found = [member.store(*each).get("key") for each in ((0, "a"), (1, "a"), (0, "b"))]
    assert found == [b"old", b"new", b"other"]


def test_hub_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that cannot reach the launcher says where it looked."""
    monkeypatch.setattr("holdfast.job.member._CONNECT_S", 0.2)
    with pytest.raises(TrainingLostError, match=r"cannot reach the launcher of node 0 at 127\.0\.0\.1:1:"):
        join(Joined(rank=0, needs=NEEDS), session=0, env={"HOLDFAST_HUB": "127.0.0.1:1"})
