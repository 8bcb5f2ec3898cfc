"""One rank of the torchrun job: DDP over gloo with a checkpoint every few steps, resumed after a restart."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parent.parent))

from rivals.workload import Notebook, Workload


def main() -> None:
    """Train from the last checkpoint to the last step."""
    options = _options()
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    (options.folder / f"pid.{attempt}.{rank}").write_text(str(os.getpid()))
    connect(attempt, rank, workers)
    work = Workload(worker=rank, workers=workers, seed=options.seed)
    optimizer = work.optimizer()
    checkpoint = options.folder / "checkpoint.pt"
    done = load(checkpoint, work, optimizer)
    model = DistributedDataParallel(work.model)
    notebook = Notebook(options.folder, f"{attempt}.{rank}")
    for step in range(done, options.steps):
        optimizer.zero_grad()
        work.loss(model, step).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        notebook.add(step + 1, group=attempt)
        if rank == 0 and (step + 1) % options.every == 0:
            save(checkpoint, work, optimizer, step + 1)
    dist.destroy_process_group()


def connect(attempt: int, rank: int, workers: int) -> None:
    """Join the process group under a name of this attempt.

    torchrun keeps its store over a restart, and gloo would find the addresses of dead ranks in it.
    """
    store = TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, wait_for_workers=False
    )
    prefixed = PrefixStore(f"attempt_{attempt}", store)
    dist.init_process_group("gloo", store=prefixed, rank=rank, world_size=workers)


def save(path: Path, work: Workload, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Replace the checkpoint whole or not at all."""
    fresh = path.with_suffix(".new")
    torch.save({"model": work.model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, fresh)
    fresh.rename(path)


def load(path: Path, work: Workload, optimizer: torch.optim.Optimizer) -> int:
    """Return the number of steps done, 0 without a checkpoint."""
    if not path.exists():
        return 0
    state: dict[str, Any] = torch.load(path, weights_only=True)
    work.model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step: int = state["step"]
    return step


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    for name in ("steps", "seed", "every"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
