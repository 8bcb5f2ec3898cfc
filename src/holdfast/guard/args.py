"""The command line of ``holdfast run``: torchrun's own parser, checked before anything is started.

Flags, ``PET_*`` variables and defaults are torch's; ours are added to the same parser. Whatever is wrong
becomes an ``InputError`` of one line.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from torch.distributed import run as torchrun
from torch.distributed.elastic.events.handlers import get_logging_handler
from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.launcher.api import LaunchConfig

from holdfast.errors import InputError
from holdfast.guard.ports import check_is_store, check_port_is_free
from holdfast.guard.signals import parse_signals
from holdfast.guard.slurm import slurm_flags

_OUR_WORDS = {
    "shutdown_timeout": "Seconds between asking a worker to stop and killing it. Default: 5.",
    "log_dir": "Folder in which run directories are made. Default: holdfast_runs.",
    "logs_specs": "Not supported: each rank's log is in the run directory.",
    "start_method": "Ignored: every worker is a new interpreter.",
    "run_path": "Ignored: every worker is a new interpreter.",
    "tee": "Accepted; output always goes to the console and to a file.",
}
"""Help where a flag of torchrun means something else here."""
_GRACE_ENV = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"


class RunArgs(msgspec.Struct, frozen=True, kw_only=True):
    """A checked command line."""

    config: LaunchConfig
    """Torch's own description of the launch."""
    command: list[str]
    """What ``boot`` is to run: ``[script, …]``, ``["-m", module, …]`` or ``["--exec", program, …]``."""
    redirects: Callable[[int], Std]
    """Streams of a local rank that go to its file only."""
    shown_ranks: frozenset[int] | None
    """Local ranks whose output is shown; None means all."""
    flags: dict[str, Any]
    """Settings that flags give; None where not given."""


def make_parser() -> argparse.ArgumentParser:
    """Return torchrun's parser with our flags added."""
    parser: argparse.ArgumentParser = torchrun.get_args_parser()
    parser.prog = "holdfast run"
    parser.description = "Run a training script under Holdfast: takes every flag of torchrun."
    parser.epilog = "example: holdfast run --standalone --nproc-per-node 2 train.py --steps 100"
    parser.add_argument(
        "--run-dir", "--run_dir", default=None, help="Folder for this run's files. Default: a new one."
    )
    parser.add_argument(
        "--no-kill-hung",
        "--no_kill_hung",
        dest="kill_hung",
        action="store_const",
        const=False,
        default=None,
        help="Only note that a worker of a pipeline hangs, instead of killing it.",
    )
    for name, words in (
        ("--rejoin", "Start a worker of a pipeline again that died, to take part when it has caught up."),
        ("--probe", "Stop ranks for a moment to test compute and links, where it is unclear who is slow."),
        (
            "--profile",
            "Profile all ranks for some seconds when the job gets slow, to name the code.",
        ),
        ("--precheck", "Test compute and links of all ranks once, before the first step."),
    ):
        parser.add_argument(name, action="store_const", const=True, default=None, help=words)
    parser.add_argument(
        "--profile-every",
        "--profile_every",
        default=None,
        metavar="STEPS",
        help="Profile all ranks again and again, after so many steps.",
    )

    parser.add_argument(
        "--act",
        default=None,
        metavar="LEVELS",
        help="What may be done about a slow job: all, none, or some of S2 (share out work anew), "
        "S3 (change places), S4 (restart without a slow node). Default: none.",
    )
    parser.add_argument(
        "--server",
        default=None,
        metavar="URL",
        help="Send events and summaries to a server (holdfast serve), and take orders from it.",
    )
    parser.add_argument(
        "--token-file",
        "--token_file",
        default=None,
        metavar="FILE",
        help="File with the token for the server. Default: the variable HOLDFAST_TOKEN.",
    )
    parser.add_argument(
        "--metrics-port",
        "--metrics_port",
        default=None,
        metavar="PORT",
        help="Show metrics to Prometheus at this port of every node. Default: none.",
    )
    parser.add_argument(
        "--metrics-host",
        "--metrics_host",
        default=None,
        metavar="ADDRESS",
        help="Listen for Prometheus on this address. Default: 127.0.0.1.",
    )
    parser.add_argument(
        "--metrics-file",
        "--metrics_file",
        default=None,
        metavar="FILE.prom",
        help="Write metrics into this file of every node, for node_exporter. Default: none.",
    )
    for action in parser._actions:
        action.help = _OUR_WORDS.get(action.dest, action.help)

    def error(message: str) -> NoReturn:
        if "required: training_script" in message:
            message = "no script given"
        raise InputError(f"{message} (see holdfast run --help)")

    parser.error = error  # type: ignore[method-assign]
    return parser


def parse(argv: Sequence[str], env: Mapping[str, str]) -> RunArgs:
    """Turn a command line into a checked launch, or raise ``InputError``."""
    try:
        parser = make_parser()
    except ValueError as error:  # A PET_* variable that torch cannot read.
        raise InputError(f"PET_* variables: {error}") from error
    args = parser.parse_args(argv)
    implied = slurm_flags(env, _given(parser, args, argv))
    if implied:
        args = parser.parse_args([*implied, *argv])
    _check_numbers(args)
    command = _command(args)
    _choose_rendezvous(args)
    grace_s = args.shutdown_timeout if args.shutdown_timeout is not None else env.get(_GRACE_ENV)
    flags = {
        "run_dir": args.run_dir,
        "runs": args.log_dir,
        "stop_grace_s": grace_s,
        "kill_hung": args.kill_hung,
        "rejoin": args.rejoin,
        "act": args.act,
        "probe": args.probe,
        "precheck": args.precheck,
        "profile": args.profile,
        "profile_every": args.profile_every,
        "server": args.server,
        "token_file": args.token_file,
        "metrics_port": args.metrics_port,
        "metrics_host": args.metrics_host,
        "metrics_file": args.metrics_file,
    }
    args.log_dir = os.devnull  # Else torch makes a folder of its own.
    config = _config(args)
    return RunArgs(
        config=config,
        command=command,
        redirects=_per_rank(_std(args.redirects)),
        shown_ranks=_shown_ranks(args.local_ranks_filter),
        flags=flags,
    )


def _given(parser: argparse.ArgumentParser, args: argparse.Namespace, argv: Sequence[str]) -> set[str]:
    """Return the names of the flags that a person gave, on the command line or by PET_* variables."""
    ours = argv[: len(argv) - len(args.training_script_args) - 1]
    actions = {text: action.dest for action in parser._actions for text in action.option_strings}
    named = {actions[word.partition("=")[0]] for word in ours if word.partition("=")[0] in actions}
    return named | {name for name in vars(args) if f"PET_{name.upper()}" in os.environ}


def _check_numbers(args: argparse.Namespace) -> None:
    if re.fullmatch("[+-]?[0-9]+", args.nproc_per_node) and int(args.nproc_per_node) < 1:
        raise InputError(f"--nproc-per-node is {args.nproc_per_node}, expected at least 1")
    try:
        low, high = torchrun.parse_min_max_nnodes(args.nnodes)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"--nnodes is {args.nnodes!r}, expected a number or MIN:MAX") from error
    if not 0 < low <= high:
        raise InputError(f"--nnodes is {args.nnodes!r}, expected at least 1 node and MIN no more than MAX")
    if args.max_restarts < 0:
        raise InputError(f"--max-restarts is {args.max_restarts}, expected 0 or more")
    if not 0 < args.monitor_interval < 3600:
        raise InputError(f"--monitor-interval is {args.monitor_interval}, expected more than 0 seconds")
    if args.master_port is not None and not 0 <= args.master_port < 65536:
        raise InputError(f"port {args.master_port} does not exist, expected 0 to 65535")
    parse_signals(args.signals_to_handle)
    if args.rdzv_backend == "static" and not args.standalone:
        _check_static(args, low, high)
    try:
        get_logging_handler(args.event_log_handler)
    except KeyError as error:
        raise InputError(f"--event-log-handler is {error}, which torch does not know") from error
    if args.logs_specs is not None:
        raise InputError("--logs-specs is not supported: each rank's log is in the run directory")


def _check_static(args: argparse.Namespace, low: int, high: int) -> None:
    if low != high:
        raise InputError(
            f"--nnodes is {args.nnodes!r}: a range needs --rdzv-backend=c10d and --rdzv-endpoint=HOST:PORT"
        )
    if not 0 <= args.node_rank < high:
        raise InputError(f"--node-rank is {args.node_rank}, expected 0 to {high - 1}")


def _command(args: argparse.Namespace) -> list[str]:
    name, rest = args.training_script, args.training_script_args
    if args.no_python:
        if args.module:
            raise InputError("--no-python and --module exclude each other")
        if shutil.which(name) is None:
            raise InputError(f"program {name} does not exist or cannot be executed")
        return ["--exec", name, *rest]
    if args.module:
        _check_module(name)
        return ["-m", name, *rest]
    if not Path(name).exists():
        raise InputError(f"script {name} does not exist")
    if not os.access(name, os.R_OK):
        raise InputError(f"script {name} cannot be read")
    return [name, *rest]


def _check_module(name: str) -> None:
    # Only the first part: looking for the rest would import the user's packages into the launcher.
    first = name.partition(".")[0]
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        found = importlib.util.find_spec(first) if first else None
    except (ImportError, ValueError):
        found = None
    finally:
        sys.path.remove(folder)
    if found is None:
        raise InputError(f"module {name} does not exist: no {first!r} here or in the environment")


def _choose_rendezvous(args: argparse.Namespace) -> None:
    """Do as torchrun does: one node and no address means a free port on this machine."""
    _, high = torchrun.parse_min_max_nnodes(args.nnodes)
    is_bare = args.rdzv_backend == "static" and not args.rdzv_endpoint and args.master_port is None
    if args.standalone or (is_bare and high == 1):
        args.rdzv_backend, args.rdzv_endpoint = "c10d", "localhost:0"
        args.rdzv_id = str(uuid.uuid4())
    args.master_port = args.master_port or 29500
    if args.rdzv_backend == "static":
        endpoint = args.rdzv_endpoint or f"{args.master_addr}:{args.master_port}"
        if args.node_rank == 0:
            check_port_is_free(endpoint)
    elif args.rdzv_backend == "c10d":
        check_is_store(args.rdzv_endpoint)


def _config(args: argparse.Namespace) -> LaunchConfig:
    try:
        # Torch does the same below, with a banner of five lines.
        if torchrun.determine_local_world_size(args.nproc_per_node) > 1:
            os.environ.setdefault("OMP_NUM_THREADS", "1")
        config, _, _ = torchrun.config_from_args(args)
    except (ValueError, AssertionError, RuntimeError, KeyError) as error:
        raise InputError(str(error).strip() or repr(error)) from error
    return config


def _std(text: str) -> Std | dict[int, Std]:
    try:
        return Std.from_str(text)
    except ValueError as error:
        raise InputError(f"--redirects is {text!r}, expected such as 3 or 0:1,1:2") from error


def _per_rank(chosen: Std | dict[int, Std]) -> Callable[[int], Std]:
    if isinstance(chosen, dict):
        return lambda local_rank: chosen.get(local_rank, Std.NONE)
    return lambda local_rank: chosen


def _shown_ranks(text: str) -> frozenset[int] | None:
    return frozenset(int(part) for part in text.split(",")) if text else None
