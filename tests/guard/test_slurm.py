"""What a Slurm job step implies for a launcher."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.guard.slurm import RENDEZVOUS_FLAGS, expand_hosts, slurm_flags

STEP = {
    "SLURM_JOB_ID": "1234",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_NODEID": "1",
}
FLAGS = [
    "--nnodes=2",
    "--node-rank=1",
    "--master-addr=gpu07",
    f"--master-port={20_000 + (1234 * 7 + 2) % 20_000}",
    "--rdzv-id=slurm-1234-2",
]


def test_a_step_of_two_nodes_implies_a_static_rendezvous_on_the_first() -> None:
    """Number of nodes, own rank, first host, a port of the job's own and an id."""
    assert slurm_flags(STEP, []) == FLAGS


def test_the_jobs_numbers_serve_where_the_step_has_none() -> None:
    """Old versions of Slurm set fewer variables."""
    env = {
        "SLURM_JOB_ID": "1234",
        "SLURM_STEP_ID": "2",
        "SLURM_NNODES": "2",
        "SLURM_NTASKS": "2",
        "SLURM_JOB_NODELIST": "gpu[07-08]",
        "SLURM_NODEID": "1",
    }
    assert slurm_flags(env, []) == FLAGS


@pytest.mark.parametrize("flag", sorted(RENDEZVOUS_FLAGS))
def test_a_person_who_gave_any_rendezvous_flag_decides(flag: str) -> None:
    """Slurm then has no say at all."""
    assert slurm_flags(STEP, ["max_restarts", flag]) == []


@pytest.mark.parametrize(
    "env",
    [
        {},
        {key: value for key, value in STEP.items() if key != "SLURM_STEP_ID"},
        STEP | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"},
    ],
    ids=["no slurm", "sbatch without srun", "one node"],
)
def test_outside_a_step_or_on_one_node_slurm_has_no_say(env: dict[str, str]) -> None:
    """Those runs are what they would be without Slurm."""
    assert slurm_flags(env, []) == []


def test_several_launchers_on_a_node_are_refused() -> None:
    """The line says how to start one per node."""
    with pytest.raises(InputError, match=r"srun started 16 launchers on 2 nodes, .* --ntasks-per-node=1"):
        slurm_flags(STEP | {"SLURM_STEP_NUM_TASKS": "16"}, [])


@pytest.mark.parametrize("step", ["interactive", "extern", "4294967290"])
def test_a_step_without_a_number_has_a_port_too(step: str) -> None:
    """The port stays a port."""
    flags = dict(flag[2:].split("=") for flag in slurm_flags(STEP | {"SLURM_STEP_ID": step}, []))
    assert 20_000 <= int(flags["master-port"]) < 40_000


@pytest.mark.parametrize(
    "change",
    [
        {"SLURM_JOB_ID": None},
        {"SLURM_NODEID": None},
        {"SLURM_STEP_NODELIST": None},
        {"SLURM_STEP_NUM_NODES": "two"},
        {"SLURM_STEP_NODELIST": "gpu[x-y]"},
        {"SLURM_STEP_NODELIST": "gpu[9-7]"},
    ],
)
def test_variables_that_make_no_sense_are_bad_input(change: dict[str, str | None]) -> None:
    """A container that passes half of them on is told so in one line."""
    env = {key: value for key, value in (STEP | change).items() if value is not None}
    with pytest.raises(InputError):
        slurm_flags(env, [])


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("a[1-3]", ["a1", "a2", "a3"]),
        ("a[01-03,7],b", ["a01", "a02", "a03", "a7", "b"]),
        ("a[8-11]", ["a8", "a9", "a10", "a11"]),
        ("a[098-101]x", ["a098x", "a099x", "a100x", "a101x"]),
        ("r[1-2]n[3-4]", ["r1n3", "r1n4", "r2n3", "r2n4"]),
        ("a-b-[1,3],c[2]", ["a-b-1", "a-b-3", "c2"]),
        ("", []),
    ],
)
def test_node_lists_are_read_as_scontrol_does(text: str, hosts: list[str]) -> None:
    """Ranges, padding, several brackets and plain names."""
    assert expand_hosts(text) == hosts


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"\A[a-z][a-z-]{0,3}\Z"),
            st.integers(1, 4),
            st.lists(st.tuples(st.integers(0, 999), st.integers(0, 5)), min_size=1, max_size=3),
        ),
        max_size=3,
    )
)
def test_any_list_made_of_ranges_gives_the_hosts_of_its_ranges(
    items: list[tuple[str, int, list[tuple[int, int]]]],
) -> None:
    """In order, padded to the width of each range's first number."""
    text, hosts = [], []
    for name, width, ranges in items:
        parts = [
            f"{low:0{width}d}-{low + more:0{width}d}" if more else f"{low:0{width}d}" for low, more in ranges
        ]
        text.append(f"{name}[{','.join(parts)}]")
        hosts += [f"{name}{n:0{width}d}" for low, more in ranges for n in range(low, low + more + 1)]
    assert expand_hosts(",".join(text)) == hosts
