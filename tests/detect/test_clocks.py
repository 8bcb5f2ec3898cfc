"""The clocks of workers: what counts as standing still, and what starts them anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.detect.clocks import Clocks, Sight, Spent
from holdfast.telemetry import Phase, Status


def _sight(rank: int = 0, *, state: str = "S", runs: int = 0, starved_s: float = 0.0, **place: Any) -> Sight:
    usual = {"pid": 9, "generation": 0, "step": 0, "op": 0, "phase": Phase.COMPUTE, "since_ns": 0}
    status = Status(rank=rank, **(usual | place))
    return Sight(status=status, state=state, runs=runs, starved_s=starved_s)


RUNNING = _sight(1, state="R")


def _last(looks: Sequence[tuple[float, Sight]]) -> Spent:
    """Return what the clocks of rank 0 say after looks at it and at one that runs."""
    clocks = Clocks(1.0)
    spent = {0: Spent()}
    for now_s, sight in looks:
        spent = clocks.see(now_s, [sight, RUNNING])
    return spent[0]


@pytest.mark.parametrize(
    ("looks", "waited_s"),
    [
        pytest.param([(5, _sight())], 0.0, id="one look shows no time"),
        pytest.param([(0, _sight()), (1, _sight()), (2, _sight())], 2.0, id="the same place"),
        pytest.param([(0, _sight()), (1, _sight()), (2, _sight(op=1))], 0.0, id="another op"),
        pytest.param([(0, _sight()), (1, _sight()), (2, _sight(step=1))], 0.0, id="another step"),
        pytest.param([(0, _sight()), (1, _sight()), (2, _sight(phase=Phase.SAVE))], 0.0, id="another phase"),
        pytest.param([(0, _sight()), (1, _sight()), (2, _sight(generation=1))], 0.0, id="another generation"),
        pytest.param([(0, _sight()), (1, _sight()), (2, _sight(pid=8))], 0.0, id="another process"),
        pytest.param([(0, _sight()), (1, _sight()), (2, _sight(state="t"))], 0.0, id="held by a debugger"),
        pytest.param([(0, _sight()), (1, _sight(state="T"))], 0.0, id="stopped"),
        pytest.param([(0, _sight(state="T")), (1, _sight())], 1.0, id="continued"),
        pytest.param([(0, _sight()), (1, _sight(since_ns=5))], 1.0, id="the same said again"),
        pytest.param([(0, _sight()), (1.9, _sight())], 1.9, id="a look a little late"),
        pytest.param([(0, _sight()), (1, _sight()), (3.1, _sight())], 0.0, id="a look too late"),
        pytest.param([(0, _sight()), (1, _sight(starved_s=0.75))], 0.25, id="no processor to be had"),
        pytest.param([(0, _sight()), (1, _sight()), (2, _sight(starved_s=9.0))], 1.0, id="nor backwards"),
    ],
)
def test_a_worker_waits_as_long_as_it_is_seen_in_one_place(
    looks: list[tuple[float, Sight]], waited_s: float
) -> None:
    """And had what it needs to get on."""
    assert _last(looks) == Spent(waited_s=waited_s)


STOPPED = _sight(state="T", runs=3)


@pytest.mark.parametrize(
    ("looks", "stopped_s"),
    [
        pytest.param([(0, _sight()), (1, STOPPED)], 0.0, id="stopped at some time since"),
        pytest.param([(0, STOPPED), (1, STOPPED), (2, STOPPED)], 2.0, id="stopped all the time"),
        pytest.param([(0, STOPPED), (1, STOPPED), (2, _sight(state="T", runs=4))], 0.0, id="ran in between"),
        pytest.param([(0, STOPPED), (1, _sight()), (2, STOPPED)], 0.0, id="stopped again"),
        pytest.param([(0, STOPPED), (3.1, STOPPED)], 0.0, id="a look too late"),
    ],
)
def test_a_worker_is_stopped_as_long_as_it_does_not_run(
    looks: list[tuple[float, Sight]], stopped_s: float
) -> None:
    """One that is stopped and continued in turn is slow, not stopped."""
    assert _last(looks).stopped_s == stopped_s


def test_a_late_look_adds_two_usual_ones_at_most() -> None:
    """Between two looks that are far apart anything may have happened."""
    clocks = Clocks(0.1)
    clocks.see(0.0, [_sight()])
    assert clocks.see(0.9, [_sight()]) == {0: Spent(waited_s=0.2)}


def test_all_stopped_starts_every_clock_anew() -> None:
    """Who is continued last is not blamed for the time that all were stopped."""
    clocks = Clocks(1.0)
    both = [STOPPED, _sight(1, state="T", runs=5)]
    for now_s in range(10):
        assert clocks.see(now_s, both) == {0: Spent(), 1: Spent()}
    assert clocks.see(10.0, [STOPPED, RUNNING])[0] == Spent(stopped_s=1.0)


def test_one_that_is_gone_and_comes_back_starts_anew() -> None:
    """A look that did not see a worker proves nothing about it."""
    clocks = Clocks(1.0)
    clocks.see(0.0, [_sight(), RUNNING])
    clocks.see(1.0, [RUNNING])
    assert clocks.see(2.0, [_sight(), RUNNING])[0] == Spent()


def test_a_restart_starts_every_clock_anew() -> None:
    """After a death all have time to notice it."""
    clocks = Clocks(1.0)
    clocks.see(0.0, [_sight()])
    clocks.see(1.0, [_sight()])
    clocks.restart()
    assert clocks.see(2.0, [_sight()]) == {0: Spent()}
    assert clocks.see(3.0, [_sight()]) == {0: Spent(waited_s=1.0)}
