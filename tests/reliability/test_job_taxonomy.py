"""The taxonomy: rows, domains, and which row a check, an XID or a reason for a drain belongs to."""

from __future__ import annotations

import pytest

from holdfast.reliability import taxonomy
from holdfast.reliability.taxonomy import row_of_event, row_of_words, row_of_xid, symptoms
from jobtables import events


def test_every_row_has_a_place_in_the_order_of_severity() -> None:
    """Each row is ranked exactly once, and each has at least one domain."""
    assert sorted(taxonomy.SEVERITY) == sorted(row.name for row in taxonomy.ROWS)
    assert all(row.is_user or row.is_software or row.is_hardware for row in taxonomy.ROWS)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("check nvidia smi gpu_num", taxonomy.GPU_GONE),
        ("check nvidia smi ecc_uncorrected_volatile_total", taxonomy.GPU_MEMORY),
        ("check_nvidia_smi_row_remap_failed", taxonomy.GPU_MEMORY),
        ("check nvidia smi retired_pages", taxonomy.GPU_MEMORY),
        ("check nvidia smi vbios_mismatch", taxonomy.DRIVER),
        ("check dcgmi nvlink error", taxonomy.NVLINK),
        ("check ibstat", taxonomy.INFINIBAND),
        ("check iblink", taxonomy.INFINIBAND),
        ("check ib interfaces", taxonomy.INFINIBAND),
        ("check link flap ib", taxonomy.INFINIBAND),
        ("check link flap eth", taxonomy.ETHERNET),
        ("check ethlink", taxonomy.ETHERNET),
        ("check mounted directory", taxonomy.MOUNTS),
        ("check mountpoint", taxonomy.MOUNTS),
        ("check memory size", taxonomy.MEMORY),
        ("check pci", taxonomy.PCIE),
        ("check service status", taxonomy.SERVICES),
        ("check ssh connection", taxonomy.SERVICES),
        ("check node slurm state", taxonomy.SERVICES),
        ("NCCL collective timeout", taxonomy.NCCL),
        ("xid 79", taxonomy.GPU_GONE),
        ("NVRM: Xid (PCI:0000:3b:00): 74, pid=1", taxonomy.NVLINK),
        ("fan speed", None),
    ],
)
def test_names_of_checks_have_the_row_that_they_speak_of(name: str, row: str | None) -> None:
    """A check finds its row by the words of its name, however they are joined."""
    assert row_of_words(name) == row


def test_xids_that_programs_bring_about_have_no_row() -> None:
    """XID 31 is a program's doing, 48 and 95 are memory, and an unknown code leaves the GPU in doubt."""
    assert [row_of_xid(code) for code in (31, 48, 95, 119, 74, 777)] == [
        None,
        taxonomy.GPU_MEMORY,
        taxonomy.GPU_MEMORY,
        taxonomy.DRIVER,
        taxonomy.NVLINK,
        taxonomy.GPU_GONE,
    ]


@pytest.mark.parametrize(
    ("kind", "name", "text", "row"),
    [
        ("check", "check ipmitool sel", "Critical Interrupt | Bus Fatal Error", taxonomy.PCIE),
        ("check", "check ipmitool sel", "Uncorrectable error | DIMM A3", taxonomy.MEMORY),
        ("check", "check xid errors", "NVRM: Xid (PCI:0000:3b:00): 64", taxonomy.GPU_MEMORY),
        ("check", "check sensors", "mount", taxonomy.OTHER),
        ("state", "DRAIN", "nvlink replay errors", taxonomy.NVLINK),
        ("state", "DOWN", "Not responding", None),
        ("ticket", "T1", "nvlink", None),
        ("exclusion", "exclude", "", None),
    ],
)
def test_events_are_read_by_what_they_are(kind: str, name: str, text: str, row: str | None) -> None:
    """Texts count only where the name says too little; tickets and exclusions are no symptoms."""
    assert row_of_event(kind, name, text) == row


def test_only_critical_events_are_symptoms() -> None:
    """Warnings and harmless XIDs are left out, XIDs without a severity go by their code."""
    found = symptoms(
        events(
            {"name": "check pci", "severity": "warning"},
            {"name": "check pci"},
            {"kind": "xid", "name": "xid 79", "severity": None},
            {"kind": "xid", "name": "xid 31", "severity": None},
            {"kind": "state", "name": "DOWN", "severity": None, "text": "Not responding"},
            {"kind": "state", "name": "IDLE", "severity": None, "text": "pcie"},
            {"kind": "ticket", "name": "T1", "severity": None},
        )
    )
    assert found["row"].to_list() == [taxonomy.PCIE, taxonomy.GPU_GONE, None]
    assert found["order"].to_list() == [2, 3, len(taxonomy.SEVERITY)]
