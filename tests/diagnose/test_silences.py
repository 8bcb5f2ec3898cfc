"""name_silent: who holds up a job in which nothing happens any more."""

from __future__ import annotations

import pytest

from holdfast.diagnose.silences import Quiet, add_places, name_silent
from holdfast.findings import Suspect
from holdfast.telemetry import InCall

IN_BACKWARD = ["/lib/torch/autograd/graph.py:869 _engine_run_backward", "/job/train.py:40 main"]
IN_CALL = ["/lib/torch/distributed/distributed_c10d.py:3101 all_reduce", "/job/train.py:41 main"]
IN_LOCK = ["/usr/lib/python3.11/threading.py:320 wait", "/job/data.py:12 fetch", "/job/train.py:30 main"]


def a_call(rank: int, calls: int = 100, *, is_in: bool = True, steps: int = 50) -> InCall:
    """Return what a rank is in the midst of."""
    return InCall(rank=rank, calls=calls, steps=steps, since_s=5.0 if is_in else None, channel=1)


def waits(rank: int, calls: int = 100, steps: int = 50) -> Quiet:
    """Return a rank that is in a call."""
    return Quiet(rank=rank, state="S", call=a_call(rank, calls, steps=steps))


def named(*ranks: Quiet) -> list[tuple[list[int], str, list[int]]]:
    """Return suspects, causes and victims."""
    found = name_silent({quiet.rank: quiet for quiet in ranks})
    return [(each.ranks, each.cause, each.victims) for each in found]


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_rank_is_named(state: str) -> None:
    """Whatever it was in when it was stopped, the others wait for it."""
    stopped = Quiet(rank=2, state=state, call=a_call(2))
    assert named(waits(0), waits(1), stopped) == [([2], "hang", [0, 1])]


@pytest.mark.parametrize("state", [None, "Z", "X"])
def test_a_dead_rank_is_named(state: str | None) -> None:
    """Also one whose death nobody has taken note of yet."""
    assert named(waits(0), Quiet(rank=1, state=state, call=a_call(1))) == [([1], "death", [0])]


def test_the_dead_come_before_the_stopped() -> None:
    """Both are named, each with its cause, and neither is a victim."""
    ranks = [waits(0), Quiet(rank=1, state="T"), Quiet(rank=2, state=None), Quiet(rank=3, state=None)]
    assert named(*ranks) == [([2, 3], "death", [0]), ([1], "hang", [0])]


def test_a_rank_in_no_call_holds_up_those_who_are() -> None:
    """It is named with the line that it is in."""
    absent = Quiet(rank=1, state="S", call=a_call(1, is_in=False), stack=IN_LOCK)
    suspects = name_silent({0: waits(0), 1: absent, 2: waits(2)})
    assert [(each.ranks, each.cause, each.victims) for each in suspects] == [([1], "hang", [0, 2])]
    assert suspects[0].evidence == [
        "rank 1 is in no communication call, but in /usr/lib/python3.11/threading.py:320 wait",
        "ranks 0 and 2 wait in communication",
    ]


def test_a_rank_that_does_not_answer_is_named_too() -> None:
    """Where it is nobody knows, but it is not where the others are."""
    suspects = name_silent({0: waits(0), 1: Quiet(rank=1, state="D", call=a_call(1, is_in=False))})
    assert [each.ranks for each in suspects] == [[1]]
    assert suspects[0].evidence == [
        "rank 1 is in no communication call, and does not answer",
        "rank 0 waits in communication",
    ]


@pytest.mark.parametrize("stack", [IN_BACKWARD, IN_CALL])
def test_a_rank_waits_also_where_only_its_stack_says_so(stack: list[str]) -> None:
    """DDP communicates within the backward pass, where no call is seen."""
    quiet = Quiet(rank=0, state="S", call=a_call(0, is_in=False), stack=stack)
    assert quiet.is_waiting
    absent = Quiet(rank=1, state="S", call=a_call(1, is_in=False), stack=IN_LOCK)
    assert named(quiet, absent) == [([1], "hang", [0])]


def test_a_communication_call_far_out_in_the_stack_is_none() -> None:
    """A script of which one frame happens to be a library's name does not wait."""
    deep = [f"/job/model.py:{line} forward" for line in range(10)]
    assert not Quiet(rank=0, state="R", stack=[*deep, *IN_CALL]).is_waiting


def test_nobody_is_named_where_all_wait_for_the_same() -> None:
    """The network holds them up, or nobody can tell."""
    assert named(waits(0), waits(1), waits(2)) == []


def test_whoever_is_a_call_behind_is_named() -> None:
    """All wait, but one of them in an earlier call than the rest."""
    suspects = name_silent({rank: waits(rank, 99 if rank == 1 else 100) for rank in range(4)})
    assert [(each.ranks, each.victims) for each in suspects] == [([1], [0, 2, 3])]
    assert suspects[0].evidence[0] == "rank 1 is in call 99 of communication, others in 100"


def test_stages_that_make_other_calls_are_not_compared() -> None:
    """The first stage of a pipeline sends once per micro-batch, others send and receive."""
    assert named(waits(0, 400), waits(1, 800), waits(2, 800), waits(3, 400)) == []


def test_all_may_hang_by_themselves() -> None:
    """Nobody waits for anybody: each is named with where it is."""
    ranks = [Quiet(rank=rank, state="D", call=a_call(rank, is_in=False), stack=IN_LOCK) for rank in (0, 1)]
    assert named(*ranks) == [([0], "hang", []), ([1], "hang", [])]
    assert named(ranks[0]) == [([0], "hang", [])]


def test_nobody_is_named_where_nobody_is() -> None:
    """Neither without ranks nor where no calls are known."""
    assert name_silent({}) == []
    assert named(Quiet(rank=0, state="S", stack=IN_CALL), Quiet(rank=1, state="S", stack=IN_CALL)) == []


def test_several_ranks_are_spoken_of_as_several() -> None:
    """Sentences agree with how many they are about."""
    suspects = name_silent({0: waits(0), 1: Quiet(rank=1, state="T"), 2: Quiet(rank=2, state="T")})
    assert suspects[0].evidence == ["ranks 1 and 2 are stopped (state T)", "rank 0 waits in communication"]
    assert name_silent({0: Quiet(rank=0, state=None)})[0].evidence == ["rank 0 is no longer there"]


def test_places_are_added_to_what_dumps_said() -> None:
    """For those who answered."""
    suspect = Suspect(ranks=[0, 1], confidence=0.9, evidence=["they have not joined"])
    told = add_places(suspect, {0: Quiet(rank=0, state="S", stack=IN_LOCK), 1: Quiet(rank=1, state="S")})
    assert told.evidence == [
        "they have not joined",
        "rank 0 is in /usr/lib/python3.11/threading.py:320 wait",
    ]
