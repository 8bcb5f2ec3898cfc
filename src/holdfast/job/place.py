"""Where this process stands in its job: rank, node, and a key that all its local peers agree on.

A reading of the environment that torchrun, Slurm or mpirun set; unknown launchers give rank 0.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_NODE = ("GROUP_RANK", "SLURM_NODEID", "OMPI_COMM_WORLD_NODE_RANK")
_JOB = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE", "MASTER_PORT")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A position in a job."""

    rank: int
    local_rank: int
    node: int
    key: str
    """The same for all ranks of a job on a node, different between jobs; good as a file name."""


def find_place(env: Mapping[str, str]) -> Place:
    """Return the position that the environment describes, rank 0 of a job of one where it is silent."""
    names = [env[name] for name in _JOB if env.get(name)]
    is_local = not names or ("WORLD_SIZE" in env and env["WORLD_SIZE"] == env.get("LOCAL_WORLD_SIZE"))
    # What launchers set by themselves is the same in many jobs: of other users, on other machines.
    whose = [f"u{os.getuid()}", *([socket.gethostname()] if is_local else [])]
    parts = [*whose, *(names or [f"pid{os.getpid()}"])]
    return Place(
        rank=_first_number(env, _RANK),
        local_rank=_first_number(env, _LOCAL_RANK),
        node=_first_number(env, _NODE),
        key="job-" + re.sub(r"[^A-Za-z0-9_.-]+", "_", "-".join(parts))[:80],
    )


def rings_folder(key: str) -> Path:
    """Create and return the folder for a job's rings: in memory where possible, and private to the user."""
    for root in (Path("/dev/shm"), Path(tempfile.gettempdir())):
        private = root / f"holdfast-{os.getuid()}"
        try:
            private.mkdir(mode=0o700, exist_ok=True)
            if private.lstat().st_uid == os.getuid() and not private.is_symlink():
                private.chmod(0o700)
            status = private.lstat()
            # Others may create names in these folders too: a folder that is not ours alone is not used.
            if status.st_uid == os.getuid() and status.st_mode & 0o077 == 0 and private.is_dir():
                folder = private / key
                folder.mkdir(mode=0o700, exist_ok=True)
                return folder
        except OSError:
            continue
    try:
        return Path(tempfile.mkdtemp(prefix="holdfast-"))
    except OSError:  # No memory, no disk: a folder that is not there, where rings quietly cannot be made.
        return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}-none"


def _first_number(env: Mapping[str, str], names: tuple[str, ...]) -> int:
    for name in names:
        if re.fullmatch("[0-9]+", env.get(name, "")):
            return int(env[name])
    return 0
