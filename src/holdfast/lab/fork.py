"""Run jobs by the hundred: workers are forked from a server that has imported torch once.

``with Lab() as lab: result = lab.run(Job(module="holdfast.lab.jobs.ddp", ranks=2), faults=[…])``
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.errors import HoldfastError
from holdfast.faults import Fault
from holdfast.job.attach import RINGS_ENV
from holdfast.lab import wire
from holdfast.lab.control import LAB_ENV
from holdfast.lab.director import Director, Scene
from holdfast.lab.faults import check_faults
from holdfast.lab.injectors.namespaces import NIC, Network
from holdfast.lab.owner import PREFIX, is_leftover, owned_name
from holdfast.lab.pacing import DEFAULT_NIC_BYTES_S, NIC_ENV
from holdfast.lab.recorder import StepRow, read_rows
from holdfast.lab.targets import RingTargets
from holdfast.values import FaultInjected, FaultRelieved

_REPLY = msgspec.json.Decoder(wire.Reply)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to run."""

    module: str
    ranks: int
    args: list[str] = []
    env: dict[str, str] = {}
    nic_bytes_s: float = DEFAULT_NIC_BYTES_S
    """Rate of a healthy emulated NIC."""
    in_namespaces: bool = False
    """Give each rank a network namespace of its own (root)."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it; lists are by rank."""

    exit_codes: list[int]
    """Negative codes are signals."""
    logs: list[str]
    events: list[FaultInjected | FaultRelieved]
    rows: list[list[StepRow]]
    is_timed_out: bool
    duration_s: float


class _Limits(NamedTuple):
    """How long a run may take, and how long after the first failure of a worker."""

    timeout_s: float
    grace_s: float


class Lab:
    """Owns a fork server; start-up costs the import of torch once."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._lines: wire.Lines | None = None

    @property
    def server_pid(self) -> int | None:
        """Return the process id of the server, None before it is started."""
        return self._server.pid if self._server is not None else None

    def __enter__(self) -> Lab:
        self._ensure_server()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server and, with it, any worker left."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._server is not None:
            self._server.wait()
            self._server = None

    def run(
        self,
        job: Job,
        faults: Sequence[Fault] = (),
        *,
        timeout_s: float = 60.0,
        grace_s: float = 10.0,
        on_start: Callable[[Path, dict[int, int]], None] | None = None,
    ) -> Result:
        """Run a job to its end and return what happened.

        ``on_start`` is called with the job's folder and with the process ids by rank, which fill up and
        empty as workers come and go.

        After ``timeout_s``, or ``grace_s`` after the first failure of a worker, the rest are killed.
        """
        check_faults(faults, world_size=job.ranks)
        self._ensure_server()
        _sweep_folders()
        folder = Path(tempfile.mkdtemp(prefix=owned_name("run-")))
        try:
            return self._run_in(folder, job, faults, _Limits(timeout_s, grace_s), on_start)
        except BaseException:
            self.close()  # Workers of a run that was broken off must not answer in the next one.
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run_in(
        self,
        folder: Path,
        job: Job,
        faults: Sequence[Fault],
        limits: _Limits,
        on_start: Callable[[Path, dict[int, int]], None] | None,
    ) -> Result:
        (folder / "rings").mkdir()
        pids: dict[int, int] = {}
        if on_start is not None:
            on_start(folder, pids)
        events: list[FaultInjected | FaultRelieved] = []
        started_s = time.monotonic()
        with contextlib.ExitStack() as stack:
            network = stack.enter_context(Network(job.ranks, job.nic_bytes_s)) if job.in_namespaces else None
            director = Director(
                faults,
                RingTargets(folder / "rings", pids),
                Scene(folder=folder, world_size=job.ranks, network=network),
                on_event=events.append,
            )
            stack.enter_context(director)
            for request in _requests(job, folder, network):
                self._send(request)
            codes, is_timed_out = self._wait(job.ranks, pids, limits)
        return Result(
            exit_codes=[codes[rank] for rank in range(job.ranks)],
            logs=[_log(folder, rank).read_text(errors="replace") for rank in range(job.ranks)],
            events=events,
            rows=[read_rows(folder, rank) for rank in range(job.ranks)],
            is_timed_out=is_timed_out,
            duration_s=time.monotonic() - started_s,
        )

    def _wait(self, ranks: int, pids: dict[int, int], limits: _Limits) -> tuple[dict[int, int], bool]:
        codes: dict[int, int] = {}
        deadline_s = time.monotonic() + limits.timeout_s
        is_timed_out = False
        while len(codes) < ranks:
            for reply in self._receive(deadline_s - time.monotonic()):
                if isinstance(reply, wire.Started):
                    pids[reply.rank] = reply.pid
                elif isinstance(reply, wire.Exited):
                    codes[reply.rank] = reply.exit_code
                    pids.pop(reply.rank, None)
                    if reply.exit_code != 0:
                        deadline_s = min(deadline_s, time.monotonic() + limits.grace_s)
            if time.monotonic() > deadline_s and len(codes) < ranks:
                is_timed_out = is_timed_out or not any(codes.values())
                self._send(wire.KillAll())
                deadline_s = time.monotonic() + 10.0
        return codes, is_timed_out

    def _ensure_server(self) -> None:
        if self._server is not None and self._server.poll() is None:
            return
        self.close()
        ours, theirs = socket.socketpair()
        # One thread each: a server with threads cannot be forked safely.
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "holdfast.lab.forkserver", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=env,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._connection, self._lines = ours, wire.Lines(ours)
        if self._receive(120.0) != [wire.Ready()]:
            raise HoldfastError("the fork server did not start")

    def _send(self, request: wire.Request) -> None:
        assert self._connection is not None
        try:
            wire.send(self._connection, request)
        except BrokenPipeError:
            raise HoldfastError("the fork server is gone") from None

    def _receive(self, timeout_s: float) -> list[wire.Reply]:
        """Return the replies that came within the time, none if none came; raise if the server is gone."""
        assert self._connection is not None
        assert self._lines is not None
        if not select.select([self._connection], [], [], max(0.0, timeout_s))[0]:
            return []
        lines = self._lines.receive()
        if lines is None:
            assert self._server is not None
            code = self._server.wait()
            raise HoldfastError(f"the fork server ended with {code}; its workers died with it")
        return [_REPLY.decode(line) for line in lines]


def _requests(job: Job, folder: Path, network: Network | None) -> list[wire.Start]:
    address, port = ("127.0.0.1", _free_port()) if network is None else (network.address(0), 29500)
    common = {
        **os.environ,
        "WORLD_SIZE": str(job.ranks),
        "LOCAL_WORLD_SIZE": str(job.ranks),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        LAB_ENV: str(folder),
        RINGS_ENV: str(folder / "rings"),
        NIC_ENV: str(job.nic_bytes_s),
        "GLOO_SOCKET_IFNAME": "lo" if network is None else NIC,
        **job.env,
    }
    return [
        wire.Start(
            rank=rank,
            argv=["-m", job.module, *job.args],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            log=str(_log(folder, rank)),
            namespace=None if network is None else network.namespace(rank),
        )
        for rank in range(job.ranks)
    ]


def _sweep_folders() -> None:
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}-*-run-*")):
        if is_leftover(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def _log(folder: Path, rank: int) -> Path:
    path = folder / f"rank_{rank}.log"
    path.touch()
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
