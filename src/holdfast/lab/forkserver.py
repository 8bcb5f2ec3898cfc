"""A process that has imported torch and forks workers on request, so that a job starts within a second.

It has one thread and runs no torch op, which is what makes forking it safe. Its workers die with it, and it
ends, killing them, when the lab at the other end of its socket is gone.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import msgspec

from holdfast.job.deathsig import die_with_parent
from holdfast.lab import wire, worker

_REQUEST = msgspec.json.Decoder(wire.Request)

# What the demo jobs import, the jobs themselves excepted: those run as `__main__`.
PRELOADED = (
    "torch",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.device_mesh",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch._dynamo",  # Half a second, which the first optimizer of every worker would pay for.
    "numpy.random",
    "holdfast.lab.jobs.common",
    "holdfast.job.pipeline",
)
_CLONE_NEWNET = 0x40000000


class Server:
    """Forks, waits, tells."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = wire.Lines(connection)
        self._ranks: dict[int, int] = {}
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Answer until the lab is gone."""
        signal.set_wakeup_fd(self._wake_w)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        wire.send(self._connection, wire.Ready())
        try:
            while self._turn():
                pass
        except BrokenPipeError:
            pass
        finally:
            self._kill_all()

    def _turn(self) -> bool:
        connection = self._connection.fileno()
        readable, _, _ = select.select([connection, self._wake_r], [], [])
        if self._wake_r in readable:
            os.read(self._wake_r, 4096)
            self._reap()
        if connection in readable:
            lines = self._lines.receive()
            if lines is None:
                return False
            for line in lines:
                self._answer(_REQUEST.decode(line))
        return True

    def _answer(self, request: wire.Request) -> None:
        if isinstance(request, wire.KillAll):
            self._kill_all()
            return
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(request, server)
        self._ranks[pid] = request.rank
        wire.send(self._connection, wire.Started(rank=request.rank, pid=pid))

    def _reap(self) -> None:
        for pid in list(self._ranks):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                wire.send(self._connection, wire.Exited(rank=self._ranks.pop(pid), pid=pid, exit_code=code))

    def _kill_all(self) -> None:
        for pid in self._ranks:  # Not reaped yet, so the numbers are still theirs.
            os.kill(pid, signal.SIGKILL)

    def _become_worker(self, request: wire.Start, server: int) -> NoReturn:
        code = 1
        try:
            os.setsid()
            die_with_parent(server)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (self._connection.fileno(), self._wake_r, self._wake_w):
                os.close(descriptor)
            _redirect(request.log)
            os.environ.clear()
            os.environ.update(request.env)
            if request.namespace is not None:
                _enter_namespace(request.namespace)
            code = worker.main(request.argv)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # Without the interpreter's own ending, which belongs to the server that was forked.
            os._exit(code)


def _redirect(log: str) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _enter_namespace(name: str) -> None:
    fd = os.open(Path("/var/run/netns") / name, os.O_RDONLY | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter namespace {name}")
    os.close(fd)


def main(argv: list[str]) -> None:
    """Serve the lab at the other end of the inherited socket."""
    for name in PRELOADED:
        importlib.import_module(name)
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"the fork server has {threads} threads; what a thread holds stays held in a fork"
    gc.collect()
    gc.freeze()  # Collections in the workers need not touch, and so copy, the pages they share.
    with socket.socket(fileno=int(argv[0])) as connection:
        Server(connection).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
