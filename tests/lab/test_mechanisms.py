"""What this machine can do, and which mechanism a fault gets."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.faults import FAULT_KINDS, Fault, FaultKind
from holdfast.lab.injectors.quota import CpuLimit, Mount, find_mount, limit_for
from holdfast.lab.kinds import REFERENCE
from holdfast.lab.mechanisms import choose, survey
from holdfast.lab.owner import is_leftover, owned_name


def test_survey_is_cheap_and_complete() -> None:
    """The survey takes under a second and says yes or no, with a reason, for every mechanism."""
    started_s = time.monotonic()
    found = survey()
    assert time.monotonic() - started_s < 1.0
    assert [mechanism.name for mechanism in found] == [
        "worker",
        "cgroup cpu",
        "sigstop duty",
        "busy neighbour",
        "socket pacing",
        "network namespaces",
    ]
    assert all(mechanism.detail for mechanism in found)


def test_side_outside_the_worker_needs_no_torch() -> None:
    """Director, faults and survey can be imported where torch is not installed."""
    modules = "holdfast.lab.director, holdfast.lab.fork, holdfast.lab.worker"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_every_kind_has_a_mechanism_of_its_table(kind: FaultKind) -> None:
    """What ``auto`` chooses is one of the mechanisms that the reference names."""
    fault = Fault(kind=kind, target=(0, 1) if kind == "slow_link" else 0)
    assert choose(fault, has_network=False) in REFERENCE[kind].mechanisms
    assert choose(fault, has_network=True) in REFERENCE[kind].mechanisms


def test_namespace_fault_is_refused_without_namespaces() -> None:
    """A job that runs in the host's network cannot have its veth slowed down."""
    with pytest.raises(InputError, match="use via=pacing"):
        choose(Fault(kind="slow_nic", target=0, via="namespace"), has_network=False)


@pytest.mark.parametrize(
    ("severity", "quota_us", "period_us"), [(2.0, 5000, 10_000), (4.0, 2500, 10_000), (50.0, 1000, 50_000)]
)
def test_quota_never_falls_below_what_the_kernel_takes(
    severity: float, quota_us: int, period_us: int
) -> None:
    """A severe quota gets a longer period, not a smaller quota."""
    assert limit_for(severity) == CpuLimit(quota_us=quota_us, period_us=period_us)


def test_version_1_controller_is_preferred() -> None:
    """Where both hierarchies are mounted, the CPU controller lives in version 1."""
    mounts = "none /a cgroup2 rw 0 0\nnone /b cgroup rw,cpu,cpuacct 0 0\nnone /c cgroup rw,memory 0 0\n"
    assert find_mount(mounts) == Mount(version=1, path=Path("/b"))
    assert find_mount("none /c cgroup rw,memory 0 0\n") is None


def test_leftovers_are_told_by_their_owner() -> None:
    """A thing is a leftover when its process is gone, or its number belongs to another process by now."""
    mine = owned_name("x")
    assert not is_leftover(mine)
    assert is_leftover("holdfast-lab-4194999-1-x")
    assert is_leftover(f"holdfast-lab-1-{2**40}-x")
    assert not is_leftover("something-else")
