"""Attach Holdfast to the process it is called in: a ring, the hooks that fill it, a guard that reads it.

Under ``holdfast run`` the launcher owns the guard and ``attach`` only installs the hooks. Under any other
launcher ``watch()`` finds out who it is from the environment, and local rank 0 starts the guard.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from holdfast.job.attendant import Attendant
from holdfast.job.observer import Observer
from holdfast.job.on_import import on_import
from holdfast.job.orders import OrderReader
from holdfast.job.place import Place, find_place, rings_folder
from holdfast.job.precheck import install_precheck, read_precheck
from holdfast.job.profiling import Profiling

RINGS_ENV = "HOLDFAST_RINGS"
"""Folder of the node's rings; set by whoever started the guard."""
ATTACHED_ENV = "HOLDFAST_ATTACHED_PID"
"""The process that has a ring; its children inherit the variable and must not replace that ring."""
ATTEMPT_ENV = "HOLDFAST_ATTEMPT"
"""Number of the attempt, where our launcher counts them."""

_attached: Observer | None = None


def attach(rings: Path, *, rank: int) -> Observer | None:
    """Install the hooks of this process once; return None when that is not possible."""
    global _attached  # noqa: PLW0603 - hooks are per process, and so is this.
    if _attached is None:
        try:
            observer = Observer(rings, rank=rank, attempt=_attempt())
        except OSError:
            return None
        observer.install()
        _listen_for_orders(observer, rings, rank)
        profiling = Profiling(rings, rank=rank)
        on_import("torch.autograd.profiler", profiling.install)
        observer.listeners.append(profiling.end_step)
        Attendant(rings, rank=rank, thread=threading.get_ident(), on_profile=profiling.take).start()
        os.environ[ATTACHED_ENV] = str(os.getpid())
        _attached = observer
    return _attached


def observer() -> Observer | None:
    """Return what observes this process, None where nothing does."""
    return _attached


def _listen_for_orders(observer: Observer, rings: Path, rank: int) -> None:
    """Carry out probes between steps, if a guard orders any, and before the first where that is wanted."""
    orders = OrderReader(rings, rank=rank)

    def listen(step: int) -> None:
        due = orders.due(step)
        if due is not None:
            from holdfast.job.prober import obey  # It imports torch, which the script has done by now.

            obey(due, rings, rank=rank)

    observer.listeners.append(listen)
    order = read_precheck(rings)
    if order is not None:
        on_import("torch.distributed", lambda: install_precheck(order, rings, rank=rank))


def _attempt() -> int:
    text = os.environ.get(ATTEMPT_ENV) or os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    return int(text) if text.isdigit() else 0


def watch(run_dir: str | Path | None = None) -> None:
    """Watch the process it is called in, under any launcher or none; a second call does nothing."""
    try:
        if os.environ.get(ATTACHED_ENV, str(os.getpid())) != str(os.getpid()):
            return  # A child of a watched process, such as a data loader that runs the script again.
        place = find_place(os.environ)
        rings = os.environ.get(RINGS_ENV)
        if rings is not None:
            attach(Path(rings), rank=place.rank)
        elif _attached is None:
            _watch_alone(place, run_dir)
    except Exception:  # A guard that cannot start must not stop the training.
        return


def _watch_alone(place: Place, run_dir: str | Path | None) -> None:
    folder = rings_folder(place.key)
    os.environ[RINGS_ENV] = str(folder)  # Children, and a second call, find it.
    attach(folder, rank=place.rank)
    if place.local_rank == 0:
        _start_guard(place, folder, Path(run_dir or os.environ.get("HOLDFAST_RUN_DIR") or _default(place)))


def _default(place: Place) -> Path:
    return Path("holdfast_runs") / place.key


def _start_guard(place: Place, rings: Path, run_dir: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-P", "-m", "holdfast.guard.watcher", "--attached"]
    command += ["--run-dir", str(run_dir), "--rings", str(rings), "--node", str(place.node)]
    command += ["--parent", str(os.getpid())]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
