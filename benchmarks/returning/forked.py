"""Workers that join without the wait for their imports: a dozen nodes boot on two cores here."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_PRELOADED = ["torch", "torch.distributed", "torch._dynamo", "holdfast.job.pipeline", "holdfast.lab.gpt"]
_BOOT = "holdfast.job.boot"


def preload() -> None:
    """Start the process that all are forked from, which has imported what they need."""
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    _context.set_forkserver_preload(_PRELOADED)


def start_joining(run_dir: Path, log: Path) -> ForkServerProcess:
    """Start a worker that does what ``holdfast join`` does."""
    process = _context.Process(target=_join, args=[str(run_dir), str(log), dict(os.environ)], daemon=True)
    process.start()
    return process


_context = multiprocessing.get_context("forkserver")


def _join(run_dir: str, log: str, env: dict[str, str]) -> None:
    from holdfast.guard.joining import take_entry
    from holdfast.job import boot

    with Path(log).open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(env)
    entry = take_entry(Path(run_dir))
    os.chdir(entry.folder)
    os.environ.clear()
    os.environ.update(entry.env)
    words = entry.command[entry.command.index(_BOOT) + 1 :]
    code = boot.main(words)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
