"""What works on this machine, as far as watching and launching need it, with or without torch."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import shutil
from pathlib import Path

import msgspec


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that works here or does not, and what follows."""

    topic: str
    name: str
    is_available: bool
    detail: str


def checkup() -> list[Check]:
    """Return all checks, in the order in which a person wants to read them."""
    return [*_machine(), *_watching(), *_torch(), *_cluster()]


def _machine() -> list[Check]:
    is_linux = platform.system() == "Linux"
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    shared = Path("/dev/shm")
    free = shutil.disk_usage(shared).free if shared.is_dir() else 0
    return [
        _check("machine", "linux", is_linux, f"{platform.system()} {platform.release()}"),
        _check("machine", "cores", True, f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}"),
        _check(
            "machine", "shared memory", free > 2**20, f"{free / 2**20:.0f} MB free in /dev/shm, for the rings"
        ),
        _check("machine", "open files", files >= 1024, f"limit {files}; each worker takes 5"),
    ]


def _watching() -> list[Check]:
    has_pidfd = hasattr(os, "pidfd_open") and _works(lambda: os.close(os.pidfd_open(os.getpid())))
    return [
        _check(
            "watching", "exit moments", has_pidfd, "pidfd_open: who died first is known to the millisecond"
        ),
        _check("watching", "ptrace", *_ptrace()),
        _check("watching", "py-spy", *_command("py-spy", "stacks of hung workers from outside")),
    ]


def _ptrace() -> tuple[bool, str]:
    scope = _read(Path("/proc/sys/kernel/yama/ptrace_scope"))
    capabilities = int(_read(Path("/proc/self/status")).partition("CapEff:")[2].split()[0] or "0", 16)
    if capabilities >> 19 & 1:
        return True, "CAP_SYS_PTRACE"
    if scope in ("", "0"):
        return True, "own processes can be traced"
    return False, f"yama/ptrace_scope is {scope}: stacks come from inside the worker instead"


def _torch() -> list[Check]:
    if importlib.util.find_spec("torch") is None:
        return [_check("torch", "torch", False, "not installed: run, inject and demo need holdfast[torch]")]
    import torch
    from torch import distributed

    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    backends = [name for name in ("nccl", "gloo", "mpi", "xccl") if _has_backend(distributed, name)]
    recorder = any("_dump_fr_trace" in name for name in dir(torch._C._distributed_c10d))
    return [
        _check("torch", "torch", True, f"{torch.__version__}"),
        _check("torch", "accelerator", accelerator is not None, _accelerator_detail(torch, accelerator)),
        _check("torch", "backends", bool(backends), ", ".join(backends) or "none"),
        _check("torch", "flight recorder", recorder, "set TORCH_FR_BUFFER_SIZE to record collectives"),
    ]


def _accelerator_detail(torch: object, accelerator: object | None) -> str:
    if accelerator is None:
        return "none: training runs on the CPU with gloo"
    count: int = torch.accelerator.device_count()  # type: ignore[attr-defined]
    return f"{count} x {accelerator}"


def _has_backend(distributed: object, name: str) -> bool:
    is_available = getattr(distributed, f"is_{name}_available", None)
    return is_available is not None and bool(is_available())


def _cluster() -> list[Check]:
    job = os.environ.get("SLURM_JOB_ID")
    slurm = shutil.which("sacct") is not None
    return [
        _check(
            "cluster",
            "slurm",
            slurm,
            f"inside job {job}" if job else "sacct " + ("found" if slurm else "not found"),
        )
    ]


def _check(topic: str, name: str, is_available: bool, detail: str) -> Check:
    return Check(topic=topic, name=name, is_available=is_available, detail=detail)


def _command(name: str, use: str) -> tuple[bool, str]:
    # Beside the interpreter as well: a virtual environment need not be activated.
    import sys

    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    return found is not None, use if found else f"not installed: {use}"


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _works(action: object) -> bool:
    try:
        action()  # type: ignore[operator]
    except OSError:
        return False
    return True
