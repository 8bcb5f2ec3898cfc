"""Where a process stands, from the variables of several launchers."""

from __future__ import annotations

import os
import re
import socket
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.job.place import Place, find_place, rings_folder

ME = f"u{os.getuid()}"
HERE = re.sub(r"[^A-Za-z0-9_.-]+", "_", socket.gethostname())


@pytest.mark.parametrize(
    ("env", "place"),
    [
        (
            {
                "RANK": "5",
                "LOCAL_RANK": "1",
                "GROUP_RANK": "2",
                "TORCHELASTIC_RUN_ID": "abc",
                "MASTER_PORT": "29500",
            },
            Place(rank=5, local_rank=1, node=2, key=f"job-{ME}-abc-29500"),
        ),
        (
            {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_JOB_ID": "77"},
            Place(rank=3, local_rank=1, node=1, key=f"job-{ME}-77"),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "OMPI_COMM_WORLD_NODE_RANK": "1",
                "PMIX_NAMESPACE": "prterun@1",
            },
            Place(rank=4, local_rank=0, node=1, key=f"job-{ME}-prterun_1"),
        ),
        (
            {"PMI_RANK": "2", "MPI_LOCALRANKID": "2", "MASTER_PORT": "1"},
            Place(rank=2, local_rank=2, node=0, key=f"job-{ME}-1"),
        ),
        (
            {"RANK": "1", "SLURM_PROCID": "9", "SLURM_JOB_ID": "77", "TORCHELASTIC_RUN_ID": "a/b"},
            Place(rank=1, local_rank=0, node=0, key=f"job-{ME}-a_b-77"),
        ),
        (
            {"RANK": "", "SLURM_PROCID": "x", "MASTER_PORT": "1"},
            Place(rank=0, local_rank=0, node=0, key=f"job-{ME}-1"),
        ),
    ],
    ids=["torchrun", "srun", "openmpi", "mpich", "torchrun in slurm", "nonsense"],
)
def test_each_launcher_is_understood(env: dict[str, str], place: Place) -> None:
    """Rank, local rank, node and key are read from the variables that launcher sets."""
    assert find_place(env) == place


def test_silence_is_a_job_of_one() -> None:
    """Without any variable it is rank 0, with a key of its own."""
    assert find_place({}) == Place(rank=0, local_rank=0, node=0, key=f"job-{ME}-{HERE}-pid{os.getpid()}")


def test_jobs_of_different_machines_are_not_the_same_by_default() -> None:
    """Where all ranks are on one machine its name is in the key; else all nodes have to agree on it."""
    plain = {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "4"}
    assert find_place(plain | {"WORLD_SIZE": "4"}).key == f"job-{ME}-{HERE}-none-29500"
    assert find_place(plain | {"WORLD_SIZE": "8"}).key == f"job-{ME}-none-29500"


@given(st.text(min_size=1, max_size=200))
def test_any_job_name_gives_a_harmless_file_name(name: str) -> None:
    """A key is one short name of plain characters, whatever people call their jobs."""
    key = find_place({"TORCHELASTIC_RUN_ID": name, "MASTER_PORT": "29500"}).key
    assert 0 < len(key) <= 80
    assert set(key) <= set(string.ascii_letters + string.digits + "_.-")


@pytest.mark.parametrize("name", [".", ".."])
def test_a_job_called_like_a_folder_above_stays_in_its_place(name: str) -> None:
    """The folder for its rings lies below our own, and is not our own."""
    ours = rings_folder("x").parent
    assert rings_folder(find_place({"TORCHELASTIC_RUN_ID": name}).key).resolve().parent == ours.resolve()


def test_two_jobs_on_a_node_have_different_folders() -> None:
    """The port tells jobs of the same name apart."""
    keys = [find_place({"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": port}).key for port in ("1", "2")]
    assert rings_folder(keys[0]) != rings_folder(keys[1])
