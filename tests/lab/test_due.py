"""Which faults are due, and which are over."""

from __future__ import annotations

import pytest

from holdfast.faults import Fault
from holdfast.lab.due import Active, is_due, is_over, rebased

SLOW = Fault(kind="slow_device", target=1, at_step=10, for_steps=5)
QUOTA = Fault(kind="cpu_quota", target=1, at_step=0, for_steps=5)
HANG = Fault(kind="hang", target=1, at_step=10, for_steps=5)
LINK = Fault(kind="slow_link", target=(0, 1), at_step=10, for_steps=5)


@pytest.mark.parametrize(
    ("fault", "steps", "expected"),
    [
        (SLOW, {1: None}, False),
        (SLOW, {1: 9}, False),
        (SLOW, {1: 10}, True),
        (SLOW, {1: 500}, True),
        (QUOTA, {1: 0}, False),  # Still starting up.
        (QUOTA, {1: 1}, True),
        (LINK, {0: 9, 1: 10}, True),
        (LINK, {0: None, 1: 10}, True),
    ],
)
def test_fault_is_due_when_a_target_reaches_its_step(
    fault: Fault, steps: dict[int, int | None], expected: bool
) -> None:
    """The first target to reach the step counts; outside faults wait for the end of start-up."""
    assert is_due(fault, steps) is expected


@pytest.mark.parametrize(
    ("fault", "steps", "now_s", "expected"),
    [
        (SLOW, {1: 14}, 0.0, False),
        (SLOW, {1: 15}, 0.0, True),
        (LINK, {0: 14, 1: 15}, 0.0, False),
        (LINK, {0: 15, 1: 15}, 0.0, True),
        (HANG, {1: 10}, 0.9, False),
        (HANG, {1: 10}, 1.0, True),
        (Fault(kind="hang", target=1), {1: 10}, 1e9, False),
        (Fault(kind="slow_device", target=1), {1: 10**9}, 0.0, False),
    ],
)
def test_fault_is_over_after_its_steps(
    fault: Fault, steps: dict[int, int | None], now_s: float, expected: bool
) -> None:
    """Steps end a fault, a hang lasts as many median steps, and None lasts for ever."""
    pids = tuple(100 + rank for rank in fault.ranks)
    active = Active(fault=fault, since_s=0.0, pids=pids)
    assert is_over(active, steps=steps, pids=pids, now_s=now_s, step_s=0.2) is expected


def test_fault_is_over_when_its_target_is_gone() -> None:
    """A restarted worker is another process, and the fault was aimed at the old one."""
    active = Active(fault=Fault(kind="cpu_quota", target=1), since_s=0.0, pids=(7,))
    assert is_over(active, steps={1: 3}, pids=(8,), now_s=0.0, step_s=None)
    assert is_over(active, steps={1: 3}, pids=(None,), now_s=0.0, step_s=None)


def test_fault_for_a_job_that_is_past_its_step_moves_to_the_next() -> None:
    """Faults can be given to a live job: they keep their length and begin with the step to come."""
    assert rebased(SLOW, {1: 100}).at_step == 101
    assert rebased(SLOW, {1: 100}).for_steps == 5
    assert rebased(SLOW, {1: 3}) == SLOW
    assert rebased(SLOW, {1: None}) == SLOW
