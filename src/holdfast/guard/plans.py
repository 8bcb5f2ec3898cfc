"""What each worker of an attempt is started with: command, environment, where its output goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from string import Template
from typing import Any

import msgspec
from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.elastic.utils import macros  # type: ignore[attr-defined]

from holdfast.errors import InputError
from holdfast.guard.args import RunArgs
from holdfast.guard.home import Home
from holdfast.guard.output import Show
from holdfast.guard.posting import TOKEN_ENV as SERVER_TOKEN_ENV
from holdfast.guard.workers import WorkerPlan
from holdfast.job.attach import ATTACHED_ENV, ATTEMPT_ENV, RINGS_ENV
from holdfast.job.messages import HUB_ENV, NEWCOMER_ENV, TOKEN_ENV

_NOT_PASSED_ON = (ATTACHED_ENV, HUB_ENV, TOKEN_ENV, NEWCOMER_ENV, SERVER_TOKEN_ENV)
"""Variables of a job that this launcher may itself be part of, and what is not for workers to know."""


RECORDER_ENV = "TORCH_FR_BUFFER_SIZE"
RECORDED_CALLS = 2000
"""Collectives that torch's Flight Recorder remembers, for when the job hangs; the user's choice stands."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One start of all workers."""

    number: int
    """Counted from 0, with every start, whatever its reason."""
    restarts: int
    """Restarts after failures so far, as torch counts them."""
    group: Any
    """Torch's worker group, after its rendezvous."""
    hub: dict[str, str] = {}
    """Variables by which the workers find the hub."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for every worker of a run."""

    args: RunArgs
    boot: list[str]
    """Start of the command line: the interpreter and the module that every worker runs."""
    env: Callable[[Home], dict[str, str]] | None = None
    """Returns variables to add to every worker's environment."""


def make_plans(recipe: Recipe, attempt: Attempt, home: Home) -> list[WorkerPlan]:
    """Return the plans of this node's workers."""
    return [_plan(recipe, attempt, home, worker) for worker in attempt.group.workers]


def _plan(recipe: Recipe, attempt: Attempt, home: Home, worker: Any) -> WorkerPlan:
    rank, local_rank = worker.global_rank, worker.local_rank
    command = [*recipe.boot, *macros.substitute(recipe.args.command, str(local_rank))]
    return WorkerPlan(
        rank=rank,
        local_rank=local_rank,
        command=_bind(command, local_rank, attempt.group.spec.numa_options),
        env={
            **{name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON},
            **({} if RECORDER_ENV in os.environ else {RECORDER_ENV: str(RECORDED_CALLS)}),
            RINGS_ENV: str(home.rings),
            ATTEMPT_ENV: str(attempt.number),
            **attempt.hub,
            **(recipe.env(home) if recipe.env is not None else {}),
            **_environment(attempt, worker),
            "TORCHELASTIC_ERROR_FILE": str(home.run_dir.error(attempt.number, rank)),
        },
        log=home.run_dir.log(attempt.number, rank),
        show=_show(recipe.args, attempt.group.spec, rank, local_rank),
    )


def _show(args: RunArgs, spec: Any, rank: int, local_rank: int) -> Show:
    hidden = args.redirects(local_rank)
    is_shown = args.shown_ranks is None or local_rank in args.shown_ranks
    template = os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE") or _prefix(rank)
    return Show(
        prefix=Template(template).safe_substitute(role_name=spec.role, rank=rank, local_rank=local_rank),
        stdout=is_shown and not hidden & Std.OUT,
        stderr=is_shown and not hidden & Std.ERR,
        stdout_filters=tuple(spec.duplicate_stdout_filters or ()),
        stderr_filters=tuple(spec.duplicate_stderr_filters or ()),
    )


def _prefix(rank: int) -> str:
    # A colour per rank where a person is looking; the files and pipes stay plain.
    if sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        return f"\x1b[{31 + rank % 6}m[rank ${{rank}}]\x1b[0m "
    return "[rank ${rank}] "


def _environment(attempt: Attempt, worker: Any) -> dict[str, str]:
    """Return the variables that torchrun sets for a worker."""
    group, spec = attempt.group, attempt.group.spec
    env = {
        "RANK": worker.global_rank,
        "LOCAL_RANK": 0 if spec.virtual_local_rank else worker.local_rank,
        "WORLD_SIZE": worker.world_size,
        "LOCAL_WORLD_SIZE": spec.local_world_size,
        "GROUP_RANK": group.group_rank,
        "GROUP_WORLD_SIZE": group.group_world_size,
        "ROLE_RANK": worker.role_rank,
        "ROLE_NAME": spec.role,
        "ROLE_WORLD_SIZE": worker.role_world_size,
        "MASTER_ADDR": group.master_addr,
        "MASTER_PORT": group.master_port,
        "TORCHELASTIC_RESTART_COUNT": attempt.restarts,
        "TORCHELASTIC_MAX_RESTARTS": spec.max_restarts,
        "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(),
        "TORCHELASTIC_USE_AGENT_STORE": True,  # It is always a launcher that hosts the store.
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
    if spec.virtual_local_rank:
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        env["CUDA_VISIBLE_DEVICES"] = worker.local_rank if devices == [""] else devices[worker.local_rank]
    return {name: str(value) for name, value in env.items()}


def _bind(command: list[str], local_rank: int, numa_options: Any) -> list[str]:
    """Wrap the command for --numa-binding as torchrun does."""
    if numa_options is None:
        return command
    from torch.numa.binding import _maybe_wrap_command_args_with_numa_binding as wrap

    try:
        return list(wrap(tuple(command), gpu_index=local_rank, numa_options=numa_options))
    except Exception as error:  # Torch asserts that there are GPUs.
        raise InputError(f"--numa-binding cannot be done here: {error or type(error).__name__}") from error
