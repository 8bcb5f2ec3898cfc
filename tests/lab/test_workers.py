"""Faults that a worker acts out itself hurt that worker, and it alone, while they last."""

from __future__ import annotations

import pytest

from disturbed import undisturbed
from holdfast.faults import Fault, FaultKind
from holdfast.lab.fork import Job, Lab, Result
from holdfast.lab.recorder import StepRow
from holdfast.values import FaultInjected, FaultRelieved

from .measure import of_rank

pytestmark = [pytest.mark.processes, pytest.mark.alone]
TARGET, PEER = 1, 0
OP_S = 0.004
OWN_S = 2 * (1 + 2) * OP_S  # Two blocks, backward twice as long as forward.
RECORDS_S = 4 * 4096 / 2e6  # A batch of records from lab storage.

SEVERITY: dict[FaultKind, float] = {
    "slow_device": 3.0,
    "data_stall": 0.05,
    "gc_storm": 0.05,
    "copy_storm": 0.05,
    "slow_storage": 5.0,
}
FAULTS: dict[FaultKind, Fault] = {
    kind: Fault(kind=kind, target=TARGET, at_step=10 + 16 * number, for_steps=8, severity=severity)
    for number, (kind, severity) in enumerate(SEVERITY.items())
}
ASKED_S = {
    "slow_device": 2 * OWN_S,
    "data_stall": 0.05,
    "gc_storm": 0.05,
    "copy_storm": 0.05,
    "slow_storage": 4 * RECORDS_S,
}


@pytest.fixture(scope="module")
def result(lab: Lab) -> Result:
    """One run that meets all of the faults, one after the other."""
    args = ["--steps", "92", "--device", "emulated", "--op-ms", str(1000 * OP_S)]
    job = Job(module="holdfast.lab.jobs.dataparallel", ranks=2, args=args)
    result = undisturbed(lambda: lab.run(job, list(FAULTS.values())))
    assert result.exit_codes == [0, 0], result.logs
    return result


def _own_s(row: StepRow) -> float:
    return row.own_s


def _data_s(row: StepRow) -> float:
    return row.data_s


@pytest.mark.parametrize("kind", FAULTS)
def test_target_is_hurt_and_its_peer_only_waits(result: Result, kind: FaultKind) -> None:
    """The target's own time grows by about what was asked, its peer's does not, and relief ends it."""
    fault = FAULTS[kind]
    target = of_rank(result, TARGET, _own_s, fault)
    peer = of_rank(result, PEER, _own_s, fault)
    assert target.growth > ASKED_S[kind] / 2, target
    assert target.growth > 2 * abs(peer.growth), (target, peer)
    assert abs(target.after - target.before) < ASKED_S[kind] / 2, target
    assert of_rank(result, PEER, lambda row: row.wait_s, fault).growth > ASKED_S[kind] / 2


@pytest.mark.parametrize(
    ("kind", "is_in_loader"), [("data_stall", True), ("slow_storage", True), ("gc_storm", False)]
)
def test_time_is_lost_where_the_fault_is(result: Result, kind: FaultKind, is_in_loader: bool) -> None:
    """Data faults are felt in the data loader, others are not."""
    in_loader = of_rank(result, TARGET, _data_s, FAULTS[kind]).growth > ASKED_S[kind] / 2
    assert in_loader is is_in_loader


def test_every_fault_is_reported_when_it_comes_and_goes(result: Result) -> None:
    """Events come in order, at the steps of the faults or right after."""
    names = [(type(event), event.fault.kind) for event in result.events]
    assert names == [(event, kind) for kind in FAULTS for event in (FaultInjected, FaultRelieved)]
    for event in result.events:
        fault = event.fault
        planned = fault.at_step + (0 if isinstance(event, FaultInjected) else fault.for_steps or 0)
        assert planned <= event.step <= planned + 2


def test_fault_at_step_0_is_there_from_the_first_step(lab: Lab) -> None:
    """A worker reads its control file before the script starts."""
    args = ["--steps", "6", "--device", "emulated", "--op-ms", "2"]
    job = Job(module="holdfast.lab.jobs.dataparallel", ranks=2, args=args)
    fault = Fault(kind="data_stall", target=0, at_step=0, for_steps=3, severity=0.2)
    rows = lab.run(job, [fault]).rows[0]
    assert [row.data_s > 0.1 for row in rows] == [True] * 3 + [False] * 3


def test_slow_device_says_so_when_there_is_none(lab: Lab) -> None:
    """A fault that cannot do anything is not silent about it."""
    job = Job(module="holdfast.lab.jobs.dataparallel", ranks=1, args=["--steps", "4"])
    result = lab.run(job, [Fault(kind="slow_device", target=0)])
    assert "slow_device has no effect" in result.logs[0]


def test_recorder_splits_a_step_in_own_time_and_waiting(result: Result) -> None:
    """Own time and waiting make up the step, and a device's ops are own time."""
    for row in result.rows[PEER][1:]:
        assert row.own_s + row.wait_s == pytest.approx(row.duration_s, rel=0.01)
        assert row.own_s > 0.9 * OWN_S
