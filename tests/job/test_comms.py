"""Communication: every call is seen for what it was, and none is any different for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commsjob import STALL_S
from holdfast.telemetry import Channel, Step
from pairs import Run, run_ranks

JOBS = Path(__file__).parent.parent
pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """The same job without us and with us."""
    folder = tmp_path_factory.mktemp("comms")
    plain, watched = (run_ranks(JOBS / "commsjob.py", folder, is_watched=w) for w in (False, True))
    for run in (plain, watched):
        assert (run.codes, run.stderr) == ([0, 0], ["", ""])
    return plain, watched


def _case(run: Run, rank: int, name: str) -> tuple[Step, list[Channel | None]]:
    """Return the step of a case, and whom it says was waited for."""
    step = run.steps(rank)[1 + run.told[rank]["names"].index(name)]
    return step, [run.channels(rank).get(use.channel) for use in step.channels]


def test_every_call_gives_what_it_gives_without_us(runs: tuple[Run, Run]) -> None:
    """By position or keyword, now or later, good or bad: results and errors are the same to the letter."""
    plain, watched = runs
    for rank in (0, 1):
        names: list[str] = plain.told[rank]["names"]
        assert _differences(names, plain.told[rank]["found"], watched.told[rank]["found"]) == {}


def _differences(names: list[str], before: list[Any], after: list[Any]) -> dict[str, Any]:
    pairs = zip(names, before, after, strict=True)
    return {name: (one, other) for name, one, other in pairs if one != other}


def test_every_function_of_this_torch_that_talks_is_called(runs: tuple[Run, Run]) -> None:
    """A function that a new torch brings shows up here."""
    assert [run.told[0]["missing"] for run in runs] == [[], []]


def test_every_case_is_one_step_and_nothing_of_ours_failed(runs: tuple[Run, Run]) -> None:
    """An error of the user's call ends no step and spoils none."""
    for rank in (0, 1):
        assert len(runs[1].steps(rank)) == 1 + len(runs[1].told[rank]["names"])


ONE_CALL = ["all_reduce 0", "all_gather 0", "broadcast 1", "reduce 1", "all_gather_object", "barrier 0"]


@pytest.mark.parametrize("name", [*ONE_CALL, "all_reduce 0 later", "all_to_all_single 1 later", "scatter 0"])
def test_a_collective_is_one_call_in_the_group_of_its_ranks(runs: tuple[Run, Run], name: str) -> None:
    """Whatever it does inside, and whether it is waited for at once or later."""
    for rank in (0, 1):
        step, channels = _case(runs[1], rank, name)
        assert step.calls == 1
        assert [channel and (channel.kind, channel.ranks) for channel in channels] == [("group", [0, 1])]
        assert 0 < step.wait_s <= step.duration_s


@pytest.mark.parametrize(
    ("name", "moved"), [("all_reduce 0", 16), ("all_reduce 2", 16), ("all_gather 0", 32), ("barrier 0", 0)]
)
def test_bytes_are_those_of_the_first_argument(runs: tuple[Run, Run], name: str, moved: int) -> None:
    """A list counts with all its tensors, by keyword as by position."""
    assert _case(runs[1], 0, name)[0].moved_bytes == moved


@pytest.mark.parametrize("name", ["isend", "batch_isend_irecv", "batch_isend_irecv with names from before"])
def test_messages_are_told_by_peer_and_direction(runs: tuple[Run, Run], name: str) -> None:
    """Of a batch too, whose waiting is for each message alone."""
    _, channels = _case(runs[1], 1, name)
    assert sorted((c.kind, c.ranks) for c in channels if c is not None) == [("from", [0]), ("to", [0])]


@pytest.mark.parametrize("name", ["slow peer", "slow peer, later"])
def test_waiting_for_a_slow_peer_is_seen_by_the_one_that_waits(runs: tuple[Run, Run], name: str) -> None:
    """The fast rank waits as long as the slow one stalls; the slow one does not wait for that."""
    fast, slow = (_case(runs[1], rank, name)[0] for rank in (0, 1))
    assert fast.wait_s > 0.8 * STALL_S
    assert slow.wait_s < slow.duration_s - 0.8 * STALL_S
    assert (fast.moved_bytes, fast.calls) == (4096, 1)
