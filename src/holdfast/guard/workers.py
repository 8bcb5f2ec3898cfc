"""The worker processes of one node and one attempt: start, look, stop.

Every worker leads a session of its own and dies with the launcher (``boot`` sees to that). When a worker
ends, whatever it left running in its session (data-loader processes, helpers) is ended as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.guard.deaths import shell_code
from holdfast.guard.output import LogFile, Pump, Show
from holdfast.guard.say import Say
from holdfast.guard.sessions import end_sessions
from holdfast.job.boot import LAUNCHER_ENV, REPORT_ENV
from holdfast.job.lastwords import SURVIVES, LastWords
from holdfast.job.messages import NEWCOMER_ENV
from holdfast.values import Death

_LAST_WORDS = msgspec.json.Decoder(LastWords)
_STUCK_S = 5.0


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One worker to start."""

    rank: int
    local_rank: int
    command: list[str]
    env: dict[str, str]
    log: Path
    show: Show
    is_newcomer: bool = False
    """It comes to a job that is under way, and goes on without it whatever becomes of it."""


class Process:
    """A process that is a worker, or is to become one: its session, its pipes, its last words."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], *, is_called: bool = False) -> None:
        self.report, report_write = os.pipe2(os.O_CLOEXEC)
        self._own = {LAUNCHER_ENV: str(os.getpid()), REPORT_ENV: str(report_write)}
        try:
            self.popen = subprocess.Popen(
                command,
                env=self.own_env(env),
                stdin=subprocess.PIPE if is_called else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[report_write],
                start_new_session=True,
            )
        except BaseException:
            os.close(self.report)
            raise
        finally:
            os.close(report_write)

    def own_env(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables with those that are for this process alone."""
        return {**env, **self._own}

    def call(self, line: bytes) -> bool:
        """Tell a process in waiting what to become; say whether it is there to hear it."""
        assert self.popen.stdin is not None
        try:
            with self.popen.stdin as pipe:
                pipe.write(line)
        except OSError:
            return False
        return self.popen.poll() is None

    def drop(self) -> None:
        """End a process that never became a worker."""
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        os.close(self.report)


class Worker:
    """One running worker."""

    def __init__(self, plan: WorkerPlan, pump: Pump, process: Process | None = None) -> None:
        self.plan = plan
        self.exit_code: int | None = None
        self._report = b""
        self._has_spoken = threading.Event()
        self._gone_s: float | None = None
        self._started_s = time.monotonic()
        process = process or Process(plan.command, plan.env)
        self.process = process.popen
        self._connect(pump, process.report)

    @property
    def pid(self) -> int:
        """Process id, also the id of its session."""
        return self.process.pid

    def poll(self) -> bool:
        """Say whether the worker has ended; the first time, end what it left running and keep its code."""
        if self.exit_code is not None:
            return True
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        self._gone_s = self._gone_s or time.monotonic()
        # Before it is reaped, so that its id cannot have passed to anybody else.
        end_sessions([self.pid])
        # Its last words may still be in the pipe; a child in another group may hold that open for ever.
        self._has_spoken.wait(0.3)
        self.exit_code = self.process.wait()
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker and all processes of its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def death(self, *, node: int, host: str) -> Death:
        """Describe how it ended."""
        code, signal_name = shell_code(self.exit_code or 0)
        words = self.words()
        native = self._native() if words is None else ""
        return Death(
            rank=self.plan.rank,
            local_rank=self.plan.local_rank,
            node=node,
            host=host,
            pid=self.pid,
            exit_code=code,
            signal=signal_name,
            error=words.error if words else None,
            traceback=words.traceback if words else native or None,
            seen_s=words.seen_s if words else self._gone_s or 0.0,
        )

    @property
    def survives(self) -> bool:
        """Whether it has said that the job goes on without it."""
        return self.plan.is_newcomer or SURVIVES in self._report.split(b"\n")

    @property
    def lived_s(self) -> float:
        """How long it has been running, or was."""
        return (self._gone_s or time.monotonic()) - self._started_s

    def words(self) -> LastWords | None:
        """Return what the script raised, if it has; the last report is the fullest."""
        found = None
        for line in self._report.split(b"\n"):
            with contextlib.suppress(msgspec.DecodeError):
                found = _LAST_WORDS.decode(line)
        return found

    def _native(self) -> str:
        """Return what was reported without being ours: the stack of a crash in native code."""
        lines = [line for line in self._report.split(b"\n") if line != SURVIVES]
        return b"\n".join(lines).decode(errors="replace").strip()

    def _connect(self, pump: Pump, report: int) -> None:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        # The pump owns the descriptors from here on.
        pump.add_output(
            stdout=os.dup(self.process.stdout.fileno()),
            stderr=os.dup(self.process.stderr.fileno()),
            log=self.plan.log,
            show=self.plan.show,
        )
        self.process.stdout.close()
        self.process.stderr.close()
        pump.add_report(report, self._hear, self._has_spoken.set)
        with contextlib.suppress(OSError):  # Kernels before 5.3: the moment is then that of the next look.
            pump.add_exit(os.pidfd_open(self.pid), self._see_gone)

    def _hear(self, data: bytes) -> None:
        self._report += data[: 256 * 1024 - len(self._report)]

    def _see_gone(self, now_s: float) -> None:
        self._gone_s = self._gone_s or now_s


class Workers:
    """All workers of a node in one attempt."""

    def __init__(self, plans: Sequence[WorkerPlan], pump: Pump, say: Say) -> None:
        self._say = say
        self._pump = pump
        self.all: list[Worker] = []
        try:
            for plan in plans:
                self.all.append(Worker(plan, pump))
        except BaseException:
            self.stop(signal.SIGKILL, grace_s=0.0)
            raise

    def replace(self, rank: int, ready: Callable[[WorkerPlan], Process | None]) -> Worker:
        """Start another worker in the place of one that has ended, from a process that is ready if any is."""
        index = next(number for number, worker in enumerate(self.all) if worker.plan.rank == rank)
        before = self.all[index].plan
        env = before.env | {NEWCOMER_ENV: str(int(before.env.get(NEWCOMER_ENV, "0")) + 1)}
        plan = msgspec.structs.replace(before, env=env, is_newcomer=True)
        self.all[index] = Worker(plan, self._pump, ready(plan))
        return self.all[index]

    def running(self) -> list[Worker]:
        """Return those that have not ended."""
        return [worker for worker in self.all if not worker.poll()]

    def failed(self) -> list[Worker]:
        """Return those that ended without success."""
        return [worker for worker in self.all if worker.poll() and worker.exit_code != 0]

    def stuck(self) -> list[Worker]:
        """Return those that have raised a while ago and still run."""
        now_s = time.monotonic()
        return [
            worker
            for worker in self.running()
            if (words := worker.words()) is not None and now_s - words.seen_s > _STUCK_S
        ]

    def stop(self, number: signal.Signals, *, grace_s: float) -> None:
        """Send the signal, wait for the grace period, then kill; return when all are reaped."""
        for worker in self.running():
            worker.signal(number)
            worker.signal(signal.SIGCONT)  # A stopped process cannot act on a signal.
        _wait_until(lambda: not self.running(), grace_s)
        for worker in self.running():
            worker.signal(signal.SIGKILL)
        if not _wait_until(lambda: not self.running(), 5.0):
            names = ", ".join(f"rank {w.plan.rank} (pid {w.pid})" for w in self.running())
            self._say.line(f"{names} cannot be killed: stuck in the kernel (disk, network, driver)")

    def settle(self, is_settled: Callable[[], bool], timeout_s: float) -> None:
        """Wait until the workers' ends tell a clear story, at most for the time-out."""
        _wait_until(is_settled, timeout_s)

    def keep_tracebacks(self, deaths: Mapping[int, Death]) -> None:
        """Add each dead worker's traceback to its own log file."""
        for worker in self.all:
            death = deaths.get(worker.plan.rank)
            if death is not None and death.traceback:
                file = LogFile(worker.plan.log, self._say).shared()
                file.write(f"{death.traceback.rstrip()}\n".encode())
                file.release()


def _wait_until(is_done: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not is_done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True
