"""One replica of the torchft job: a group of one rank, started by ``torchft_job``."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]

sys.path.insert(0, str(Path(__file__).parent.parent))

from rivals.workload import Notebook, Workload

LOOPBACK = "127.0.0.1"


def main() -> None:
    """Train until the last step is committed."""
    options = _options()
    work = Workload(worker=options.replica, workers=options.workers, seed=options.seed)
    inner = work.optimizer()
    manager = make_manager(options, work.model, inner)
    optimizer = _wrap(manager, inner)
    notebook = Notebook(options.folder, f"{options.attempt}.{options.replica}")
    wait_for_others(options)
    while manager.current_step() < options.steps:
        step = manager.current_step()
        optimizer.zero_grad()
        work.loss(work.model, step).backward()  # type: ignore[no-untyped-call]
        average_gradients(manager, work.model)
        optimizer.step()
        is_kept = manager.current_step() > step
        notebook.add(
            manager.current_step() if is_kept else step + 1, group=manager.num_participants(), is_kept=is_kept
        )
    # Servers of torchft have threads of their own that can keep a process from its end.
    os._exit(0)


def make_manager(options: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    """Return torchft's manager; a time that is not set keeps torchft's default."""
    torchft: Any = importlib.import_module("torchft")

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    store = TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
    times = {name: timedelta(seconds=value) for name, value in json.loads(options.times).items()}
    group_time = {"timeout": times["timeout"]} if "timeout" in times else {}
    manager: Any = torchft.Manager(
        pg=torchft.ProcessGroupGloo(**group_time),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=1,
        replica_id=f"replica_{options.replica}",
        store_addr=LOOPBACK,
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=options.lighthouse,
        hostname=LOOPBACK,
        **times,
    )
    manager.store_kept_alive = store
    return manager


def average_gradients(manager: Any, model: nn.Module) -> None:
    """Average all gradients in one all-reduce; an error is noted by the manager, which discards the step.

    This is what torchft's own DDP wrapper does with one bucket. The wrapper itself cannot be used: when gloo
    reports a lost peer, an assertion of its hook (torchft 0.2.0) ends every survivor.
    """
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    manager.allreduce(flat).wait()
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def wait_for_others(options: argparse.Namespace) -> None:
    """Start the first step together; a replica that comes later does not wait."""
    (options.folder / f"ready.{options.attempt}.{options.replica}").touch()
    while not (options.folder / "go").exists():
        time.sleep(0.01)


def _wrap(manager: Any, inner: torch.optim.Optimizer) -> Any:
    return importlib.import_module("torchft").Optimizer(manager, inner)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    for name in ("replica", "attempt", "workers", "steps", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--lighthouse", required=True)
    parser.add_argument("--times", required=True, help="seconds of the manager by name, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
