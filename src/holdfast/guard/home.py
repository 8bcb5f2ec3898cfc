"""What a node keeps for its run: the run directory, the event log, the rings, the guard.

Opened after the nodes have found each other, because only then it is known which node this is and, where
nobody named one, which run directory node 0 has chosen for all.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import InputError
from holdfast.guard.eventlog import EventLog
from holdfast.guard.exposing import ExposeSettings, name_metrics_flags
from holdfast.guard.levels import parse_levels
from holdfast.guard.posting import make_poster, parse_server
from holdfast.guard.rings import RingsFolder
from holdfast.guard.rundir import RunDir, default_path, make_info, make_key
from holdfast.guard.say import Say
from holdfast.guard.sending import flush_within
from holdfast.guard.supervisor import Supervisor
from holdfast.settings import Effective
from holdfast.values import RunEnded, RunStarted

_FLUSH_S, _FLUSH_STOPPED_S = 3.0, 1.0
"""For the last lines to reach a server; who was stopped by a signal has to be gone soon."""


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of ``holdfast run``, table ``[run]``."""

    run_dir: str | None = None
    """Folder for this run's files; a new one below ``runs`` when not given."""
    runs: str = "holdfast_runs"
    """Folder in which run directories are made."""
    stop_grace_s: float = 5.0
    """Seconds between asking a worker to stop and killing it."""
    kill_hung: bool = True
    """Whether a worker of a pipeline that hangs is killed, so that the others can go on without it."""
    rejoin: bool = False
    """Whether a worker of a pipeline that died is started again, to take part when it has caught up."""
    probe: bool = False
    """Whether ranks may be stopped for a moment, to test their compute and links."""
    precheck: bool = False
    """Whether they are tested before the first step."""
    act: str = ""
    """What may be done about a slow job: all, or a list such as S2,S3; nothing when not given."""
    profile: bool = False
    """Whether all ranks are profiled when the job gets slow."""
    profile_every: int = 0
    """Steps between two profiles of all ranks; 0: only when somebody asks."""
    server: str | None = None
    """Address of a server to which events and summaries are sent; nothing is sent when not given."""
    token_file: str | None = None
    """File with the token for that server; else it is taken from HOLDFAST_TOKEN."""
    metrics_port: int = 0
    """Port at which the guard of each node shows metrics to Prometheus; 0: none."""
    metrics_host: str = "127.0.0.1"
    """Address on which it listens."""
    metrics_file: str | None = None
    """File into which the guard of each node writes metrics for node_exporter, ending in .prom."""

    def __post_init__(self) -> None:
        try:
            parse_levels(self.act)
            if self.server is not None:
                parse_server(self.server)
        except InputError as error:
            raise ValueError(str(error)) from None
        self.exposing()
        if self.profile_every < 0:
            raise ValueError(f"profile_every is {self.profile_every}, expected 0 or more steps")
        if not 0 <= self.stop_grace_s <= 3600:
            raise ValueError(f"stop_grace_s is {self.stop_grace_s}, expected 0 to 3600")

    def exposing(self) -> ExposeSettings:
        """Return where guards show metrics."""
        return ExposeSettings(port=self.metrics_port, host=self.metrics_host, file=self.metrics_file)


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run before its nodes have met."""

    run_id: str
    argv: list[str]
    settings: RunSettings
    effective: dict[str, Effective]
    launch: dict[str, Any]
    on_start: Callable[[Home], Callable[[], None]] | None = None
    """Called when the home is open, before the workers start; what it returns is called at the end."""


def propose_run_dir(plan: RunPlan) -> str:
    """Return the run directory that a node would choose alone."""
    return plan.settings.run_dir or str(
        default_path(Path(plan.settings.runs), plan.run_id, datetime.now(UTC)).absolute()
    )


class Home:
    """One node's keeping of one run."""

    def __init__(self, plan: RunPlan, say: Say, *, node: int, chosen: str, key: str = "") -> None:
        self.plan = plan
        self.key = key or make_key()
        """Of the run."""
        self.say = say
        # What this node was told itself goes before the choice of node 0.
        self.run_dir = RunDir(Path(plan.settings.run_dir or chosen).absolute(), say)
        self._rings = RingsFolder()
        self.rings = self._rings.path
        self.log = EventLog(self.run_dir.path, node=node, host=socket.gethostname(), say=say)
        self.supervisor = Supervisor(
            run_dir=self.run_dir.path,
            rings=self.rings,
            log=self.log,
            say=say,
            flags=[
                *([] if plan.settings.kill_hung else ["--no-kill-hung"]),
                *(["--probe"] if plan.settings.probe else []),
                *(["--act", plan.settings.act] if plan.settings.act else []),
                *(["--profile"] if plan.settings.profile else []),
                *(
                    ["--profile-every", str(plan.settings.profile_every)]
                    if plan.settings.profile_every
                    else []
                ),
                "--run-key",
                self.key,
                *(["--server", plan.settings.server] if plan.settings.server is not None else []),
                *(["--token-file", plan.settings.token_file] if plan.settings.token_file is not None else []),
                *name_metrics_flags(plan.settings.exposing()),
            ],
        )
        if node == 0:
            info = make_info(
                run_id=plan.run_id,
                argv=plan.argv,
                rings=self.rings,
                settings=plan.effective,
                launch=plan.launch,
            )
            self.run_dir.write_info(msgspec.structs.replace(info, key=self.key))
        if node == 0 and self.run_dir.path.is_dir():
            say.line(f"run directory {self.run_dir.path}")
        self.log.append(RunStarted(run_id=plan.run_id, argv=plan.argv, pid=os.getpid()))
        self._finish: Callable[[], None] | None = None

    def begin(self) -> None:
        """Call whoever wanted to know that the home is open."""
        if self.plan.on_start is not None:
            self._finish = self.plan.on_start(self)

    def close(self, *, exit_code: int, reason: str) -> None:
        """Write the last event and leave nothing running."""
        if self._finish is not None:
            self._finish()
        self.supervisor.stop()
        self.log.append(RunEnded(exit_code=exit_code, reason=reason))
        self._rings.remove()
        self._send_rest(_FLUSH_STOPPED_S if reason.startswith("stopped") else _FLUSH_S)

    def _send_rest(self, limit_s: float) -> None:
        """Send what was written since the guard ended; the last word of a run is its launcher's."""
        settings = self.plan.settings
        if settings.server is not None:
            poster = make_poster(settings.server, token_file=settings.token_file)
            flush_within(self.run_dir.path, poster, node=self.log.node, key=self.key, limit_s=limit_s)

    def drop(self) -> None:
        """Leave nothing running, at once and without a word."""
        self.supervisor.kill()
        self._rings.remove()
