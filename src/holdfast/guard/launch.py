"""``holdfast run`` on one node: start the workers through torch's rendezvous, tell how it ended."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from torch.distributed import DistError
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous import registry as rendezvous_registry
from torch.distributed.elastic.rendezvous.api import RendezvousError
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from holdfast.errors import InputError, JobError
from holdfast.guard.agent import Agent, Ports
from holdfast.guard.args import RunArgs, parse
from holdfast.guard.console import Console
from holdfast.guard.deaths import cause, describe, others
from holdfast.guard.home import Home, RunPlan, RunSettings, propose_run_dir
from holdfast.guard.leaving import LeftOut
from holdfast.guard.output import Pump
from holdfast.guard.plans import Recipe
from holdfast.guard.say import Say
from holdfast.guard.signals import SignalWatch, Stopped
from holdfast.settings import load
from holdfast.values import Death

_HARD_LIMIT_S = 9.0
"""From the first stop signal to the end of every process, whatever happens."""


class Extra(msgspec.Struct, frozen=True, kw_only=True):
    """What a lab adds to a launch."""

    worker_module: str = "holdfast.job.boot"
    """The module that every worker runs."""
    worker_env: Callable[[Home], dict[str, str]] | None = None
    """Returns variables to add to every worker's environment."""
    check: Callable[[RunArgs], None] | None = None
    """Called with the command line before anything is started; raises ``InputError`` if it does not fit."""
    on_start: Callable[[Home], Callable[[], None]] | None = None
    """Called when the run directory is open; what it returns is called at the end."""


def launch(argv: Sequence[str], extra: Extra | None = None) -> int:
    """Run a job as the command line says and return its exit code; raise ``InputError`` on a bad one."""
    extra = extra or Extra()
    _open_standard_streams()
    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    args = parse(argv, os.environ)
    if extra.check is not None:
        extra.check(args)
    settings, effective = load(RunSettings, table="run", env=os.environ, flags=args.flags)
    plan = RunPlan(
        run_id=args.config.run_id,
        argv=list(argv),
        settings=settings,
        effective=effective,
        launch=_describe_config(args),
        on_start=extra.on_start,
    )
    return _Launch(args, plan, extra).run()


class _Launch:
    """One launch on one node."""

    def __init__(self, args: RunArgs, plan: RunPlan, extra: Extra) -> None:
        self._args = args
        self._plan = plan
        self._extra = extra
        self._grace_s = plan.settings.stop_grace_s
        self._console = Console()
        self._say = Say(put=self._console.put)
        self._pump = Pump(self._console, self._say)
        self._agent: Agent | None = None
        self._home: Home | None = None

    def run(self) -> int:
        """Run to the end, come what may, and leave nothing behind."""
        watch = SignalWatch(
            names=self._args.config.signals_to_handle,
            limit_s=max(_HARD_LIMIT_S, self._grace_s + 3.0),
            kill_all=self._kill_all,
        )
        code, reason = 1, "error"
        try:
            self._agent = self._make_agent()
            code, reason = self._run_agent(self._agent)
        except Stopped as stop:
            code, reason = 128 + stop.number, f"stopped by {stop.number.name}"
        finally:
            watch.close()
            self._stop(watch.received)
            self._close(code, reason)
        return code

    def _make_agent(self) -> Agent:
        config = self._args.config
        master_addr, master_port = None, None
        if config.rdzv_backend == "static":
            master_addr, master_port = parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=-1)
        spec = WorkerSpec(
            role=config.role,
            local_world_size=config.nproc_per_node,
            entrypoint=self._args.command[0],
            args=(),
            rdzv_handler=_rendezvous_handler(config),
            max_restarts=config.max_restarts,
            monitor_interval=config.monitor_interval,
            master_addr=master_addr,
            master_port=master_port,
            local_addr=config.local_addr,
            event_log_handler=config.event_log_handler,
            numa_options=config.numa_options,
            duplicate_stdout_filters=config.duplicate_stdout_filters,
            duplicate_stderr_filters=config.duplicate_stderr_filters,
            virtual_local_rank=config.virtual_local_rank,
        )
        ports = Ports(
            pump=self._pump,
            say=self._say,
            propose=lambda: propose_run_dir(self._plan),
            open_home=self._open_home,
        )
        recipe = Recipe(
            args=self._args, boot=_boot_command(self._extra.worker_module), env=self._extra.worker_env
        )
        return Agent(spec, recipe, ports, grace_s=self._grace_s)

    def _open_home(self, node: int, chosen: str, key: str) -> Home:
        self._home = Home(self._plan, self._say, node=node, chosen=chosen, key=key)
        self._home.begin()
        return self._home

    def _run_agent(self, agent: Agent) -> tuple[int, str]:
        handler = agent.get_worker_group().spec.rdzv_handler
        try:
            result = agent.run()
        except (RendezvousError, DistError) as error:
            raise JobError(f"the nodes did not find each other: {_last_line(error)}", exit_code=1) from error
        except OSError as error:
            raise JobError(f"cannot start a worker: {error}", exit_code=1) from error
        except LeftOut:
            return 0, "left out"
        finally:
            with contextlib.suppress(Exception):
                handler.shutdown()
        if result is None:  # The other nodes finished while this one was waiting to join.
            return 0, "left the rendezvous"
        if result.is_failed():
            return (agent.first.exit_code if agent.first is not None else 1) or 1, "failed"
        return 0, "succeeded"

    def _stop(self, received: signal.Signals | None) -> None:
        if self._agent is not None:
            self._agent.stop_signal = received
            self._agent.stop()

    def _close(self, code: int, reason: str) -> None:
        if self._home is not None:
            self._home.close(exit_code=code, reason=reason)
        self._pump.close()
        self._console.close(2.0)
        self._say = Say()  # Nothing else is left that it could hold up.
        if self._console.dropped:
            self._say.line(f"{self._console.dropped} blocks of output were not shown: the terminal was slow")
        if reason == "failed" and self._agent is not None and self._agent.first is not None:
            self._tell_failure(self._agent.first, self._agent.deaths)
        elif reason.startswith("stopped"):
            self._say.line(reason)

    def _tell_failure(self, first: Death, deaths: list[Death]) -> None:
        # srun shows the output of all launchers in one place: there it is enough that one of them shows it.
        is_mine = self._home is None or first.node == self._home.log.node
        if first.traceback and (is_mine or "SLURM_STEP_ID" not in os.environ):
            self._say.raw(first.traceback.rstrip() + "\n")
        for line in others(first, deaths):
            self._say.line(line)
        if self._home is not None:
            self._say.line(f"logs are in {self._home.run_dir.path}")
        self._say.line(describe(first))
        _pass_error_on(first)

    def _kill_all(self) -> None:
        if self._agent is not None:
            self._agent.kill_workers()
        if self._home is not None:
            self._home.drop()


def _open_standard_streams() -> None:
    """Give closed standard streams (``>&-``) to nobody, lest pipes of ours get their numbers."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest free number, which is this one.


def _boot_command(module: str) -> list[str]:
    # -P keeps the current folder off the path until the user's own script is started from it.
    return [os.environ.get("PYTHON_EXEC", sys.executable), "-P", "-u", "-m", module]


def _rendezvous_handler(config: Any) -> Any:
    parameters = RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
        **config.rdzv_configs,
    )
    try:
        return rendezvous_registry.get_rendezvous_handler(parameters)
    except Exception as error:  # Backends raise what they like: a missing package, a bad address, a stub.
        raise InputError(f"rendezvous at {config.rdzv_endpoint!r}: {_last_line(error)}") from error


def _describe_config(args: RunArgs) -> dict[str, Any]:
    config = args.config
    names = (
        "min_nodes",
        "max_nodes",
        "nproc_per_node",
        "role",
        "rdzv_backend",
        "rdzv_endpoint",
        "max_restarts",
    )
    return {name: getattr(config, name) for name in names} | {"command": args.command}


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__


def _pass_error_on(first: Death) -> None:
    """Write the error file of whoever started this launcher, as torchrun does."""
    name = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not name:
        return
    extra = {"py_callstack": first.traceback or "", "timestamp": str(int(time.time()))}
    message = {"message": cause(first), "errorCode": first.exit_code, "extraInfo": extra}
    with contextlib.suppress(OSError):
        Path(name).write_text(json.dumps({"message": message}))
