"""What faults mean for a worker in a step."""

from __future__ import annotations

from pathlib import Path

from holdfast.faults import Fault
from holdfast.lab.control import ControlFile, control_path, write_faults
from holdfast.lab.strain import Strain, concerns, link_slowdown, strain_on

FAULTS = [
    Fault(kind="slow_device", target=1, at_step=5, for_steps=5, severity=2.0),
    Fault(kind="slow_device", target=1, at_step=8, severity=3.0),
    Fault(kind="data_stall", target=1, at_step=5, severity=0.1),
    Fault(kind="data_stall", target=1, at_step=5, severity=0.2),
    Fault(kind="gc_storm", target=0, at_step=0, severity=0.5),
]


def test_factors_multiply_and_seconds_add_up() -> None:
    """Faults of one kind that overlap hurt together."""
    assert strain_on(FAULTS, rank=1, step=4) == Strain()
    strain = strain_on(FAULTS, rank=1, step=8)
    assert (strain.device_slowdown, round(strain.stall_s, 9)) == (6.0, 0.3)
    assert strain_on(FAULTS, rank=1, step=10).device_slowdown == 3.0


def test_faults_hurt_their_target_only() -> None:
    """A rank suffers nothing of a fault aimed at another."""
    assert strain_on(FAULTS, rank=0, step=8) == Strain(garbage_s=0.5)
    assert strain_on(FAULTS, rank=2, step=8) == Strain()


def test_path_is_as_slow_as_what_lies_on_it() -> None:
    """A slow link counts between its ends only, a slow NIC on every path of its rank."""
    faults = [
        Fault(kind="slow_link", target=(0, 1), severity=2.0),
        Fault(kind="slow_nic", target=1, severity=3.0),
    ]
    assert link_slowdown(faults, ends=(1, 0), step=0) == 6.0
    assert link_slowdown(faults, ends=(1, 2), step=0) == 3.0
    assert link_slowdown(faults, ends=(0, 2), step=0) == 1.0


def test_everybody_has_a_part_in_a_slow_network() -> None:
    """Peers pace what they send to a slow NIC; other faults concern their target alone, or no worker."""
    assert concerns(Fault(kind="slow_nic", target=1), 0)
    assert concerns(Fault(kind="slow_link", target=(0, 1)), 2)
    assert not concerns(Fault(kind="slow_device", target=1), 0)
    assert not concerns(Fault(kind="cpu_quota", target=1), 1)


def test_control_file_is_read_again_when_it_is_replaced(tmp_path: Path) -> None:
    """A worker sees faults that are added while it runs, and none before there is a file."""
    control = ControlFile(control_path(tmp_path, 1))
    assert control.read() == []
    write_faults(tmp_path, 1, FAULTS[:1])
    assert control.read() == FAULTS[:1]
    write_faults(tmp_path, 1, FAULTS)
    assert control.read() == FAULTS
    assert [path.name for path in tmp_path.iterdir()] == ["rank_1.json"]
