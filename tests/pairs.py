"""Two ranks of a job, with Holdfast inside them or without: what they said, and what their rings have."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.job.attach import RINGS_ENV
from holdfast.job.channels import channels_path, read_channels
from holdfast.job.ring import RingReader, ring_path
from holdfast.telemetry import Channel, Step

PATIENCE_S = 60.0
_FOREIGN = ("RANK", "LOCAL_RANK", "TORCHELASTIC_", "HOLDFAST_", "MASTER_", "WORLD_SIZE")
_numbers = itertools.count()


class Run(NamedTuple):
    """What became of the ranks of a job."""

    told: list[Any]
    """What each rank wrote with ``tell``."""
    codes: list[int]
    stderr: list[str]
    rings: Path

    def steps(self, rank: int) -> list[Step]:
        """Return what a rank's ring has."""
        return RingReader(ring_path(self.rings, rank)).read()

    def channels(self, rank: int) -> dict[int, Channel]:
        """Return the channels of a rank by their numbers."""
        return read_channels(channels_path(self.rings, rank))


def run_ranks(
    script: Path, folder: Path, arguments: Sequence[str] = (), *, is_watched: bool = True, world_size: int = 2
) -> Run:
    """Run a script to its end as so many ranks, all of which are given what they need to find each other."""
    home = folder / f"run_{next(_numbers)}"
    (home / "rings").mkdir(parents=True)
    boot = ["-m", "holdfast.job.boot"] if is_watched else []
    usual = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    usual |= {RINGS_ENV: str(home / "rings"), "WORLD_SIZE": str(world_size), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, *boot, str(script), *arguments],
            env=usual | {"RANK": str(rank), "LOCAL_RANK": str(rank), "PAIR_HOME": str(home)},
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        stderr = [process.communicate(timeout=PATIENCE_S)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    told = [_read(home / f"told_{rank}.json") for rank in range(world_size)]
    return Run(told, [process.returncode for process in processes], stderr, home / "rings")


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def home() -> Path:
    """Return the folder of the run, in one of its ranks."""
    return Path(os.environ["PAIR_HOME"])


def rank() -> int:
    """Return the rank of this process."""
    return int(os.environ["RANK"])


def tell(value: Any) -> None:
    """Leave a value for the test, in one of its ranks."""
    (home() / f"told_{rank()}.json").write_text(json.dumps(value))


def join_group() -> None:
    """Make the process group of all ranks."""
    import torch.distributed as dist

    method = f"file://{home()}/store"
    dist.init_process_group("gloo", init_method=method, rank=rank(), world_size=int(os.environ["WORLD_SIZE"]))
