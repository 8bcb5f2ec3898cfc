"""A small job that is probed: ``-m probejob FOLDER ORDER [SCENE]``; rank 0 gives the order, as a guard would.

ORDER is JSON, or ``none``. Every rank prints its losses and the sum of an all-reduce after every step, and at
the end whether it has the same things open as before. A scene makes something go wrong on one rank.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from holdfast.job import prober
from holdfast.job.orders import OrderReader, OrderWriter, ProbeOrder
from holdfast.lab.injectors.namespaces import NIC
from holdfast.lab.pacing import connections, pace

STEPS = 12
ORDER_AT = 2
VICTIM = 2
"""The rank to which scenes happen, unless they say another."""


def say(*words: object) -> None:
    """Print one line, whole."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def die(*_: Any, **__: Any) -> None:
    """End as a worker ends whose node lost its power."""
    os.kill(os.getpid(), signal.SIGKILL)


def sleep_in_gemm() -> None:
    """Make every product take 0.2 s longer."""
    real = torch.mm

    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.2)
        return real(*args, **kwargs)

    torch.mm = slow


def pace_probe_sockets() -> None:
    """Let the group of the probe send 10 MB a second; in a ring a rank sends to one other alone."""
    real = dist.ProcessGroupGloo

    def paced(*args: Any) -> Any:
        before = {connection.fd for connection in connections()}
        group = real(*args)
        for connection in connections():
            if connection.fd not in before:
                pace(connection.fd, 10e6)
        return group

    prober.ProcessGroupGloo = paced  # type: ignore[attr-defined,assignment]


SCENES: dict[str, Callable[[], None]] = {
    "dies_in_gemm": lambda: setattr(torch, "mm", die),
    "dies_in_links": lambda: setattr(prober, "LinkTime", die),
    "slow_gemm": sleep_in_gemm,
    "paced": pace_probe_sockets,
}


def has_quota() -> bool:
    """Return whether the lab has moved this process into a group of its own."""
    return "holdfast-lab" in Path("/proc/self/cgroup").read_text()


def has_slow_path() -> bool:
    """Return whether the lab has given a path out of this namespace a rate of its own."""
    shown = subprocess.run(["tc", "filter", "show", "dev", NIC], capture_output=True, text=True, check=True)
    return "flowid" in shown.stdout


WAITS: dict[str, tuple[int, Callable[[], bool]]] = {
    "quota": (VICTIM, has_quota),
    "slow_path": (1, has_slow_path),
}
"""Which rank holds the job until a fault from outside has come, before the order is given."""


class Hook:
    """Does after a step what the hook of a watched job does, in the way of the scene."""

    def __init__(self, folder: Path, scene: str) -> None:
        self.steps = 0
        self._folder = folder
        self._rank = dist.get_rank()
        self._reader = OrderReader(folder, rank=self._rank)
        self._looks_from = {"absent": STEPS, "late": 6}.get(scene, 0) if self._rank == VICTIM else 0

    def __call__(self, *_: Any) -> None:
        due = self._reader.due(self.steps) if self.steps >= self._looks_from else None
        if due is not None:
            prober.obey(due, self._folder, rank=self._rank)
        self.steps += 1


def what_is_open() -> tuple[int, int, int]:
    """Return how many threads of Python and of the kernel there are, and how many connections."""
    gc.collect()
    return threading.active_count(), len(os.listdir("/proc/self/task")), len(connections())  # noqa: PTH208


def settings() -> tuple[Any, ...]:
    """Return what belongs to the user and must stay as it is."""
    state = torch.get_rng_state().sum().item()
    modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    return state, torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads(), *modes


def wait_for_fault(scene: str, rank: int) -> None:
    """Return when the fault of the scene is there."""
    holder, has_come = WAITS.get(scene, (-1, lambda: True))
    while rank == holder and not has_come():
        time.sleep(0.01)


def wait_for_the_one_ahead(order: ProbeOrder, folder: Path, step: Callable[[], None]) -> None:
    """Let one rank run past the order's step before the others begin, as a first stage does."""
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == VICTIM:
        for _ in range(order.at_step + 2):
            step()
        OrderWriter(folder).write(order)
        step()
        store.set("ahead", "1")
    store.wait(["ahead"])


def main() -> None:
    """Train, and be probed."""
    folder, scene = Path(sys.argv[1]), sys.argv[3] if len(sys.argv) > 3 else ""
    order = None if sys.argv[2] == "none" else msgspec.json.decode(sys.argv[2], type=ProbeOrder)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(folder, scene)
    register_optimizer_step_post_hook(hook)
    if rank == VICTIM and scene in SCENES:
        SCENES[scene]()

    def step() -> None:
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        say("loss", repr(loss.item()))

    dist.barrier()
    before = what_is_open()
    if scene == "ahead" and order is not None:
        wait_for_the_one_ahead(order, folder, step)
    while hook.steps < STEPS:
        step()
        if hook.steps == ORDER_AT:
            wait_for_fault(scene, rank)
        if scene != "ahead":
            total = torch.tensor([float(hook.steps)])
            dist.all_reduce(total)
            say("sum", total.item())
        if rank == 0 and hook.steps == ORDER_AT and order is not None and scene != "ahead":
            OrderWriter(folder).write(order)
    dist.barrier()
    say("settings", *settings())
    after = what_is_open()
    say("open", before == after)
    say("threads and connections", before, after)
    dist.barrier()  # Who ends first closes its connections.
    dist.destroy_process_group()
    gc.collect()


if __name__ == "__main__":
    main()
