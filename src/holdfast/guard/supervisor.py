"""Keeps a guard running beside the workers: it may die at any moment, and another one is started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from holdfast.guard.deaths import shell_code
from holdfast.guard.eventlog import EventLog
from holdfast.guard.reporting import TOKEN_ENV, Reporting
from holdfast.guard.say import GREETING, Say
from holdfast.values import GuardDied

_PAUSE_S = (0.0, 0.5, 2.0, 10.0, 30.0)
"""Wait before the n-th start in a row; a guard that lives for a minute begins at the front again."""


class Supervisor:
    """The launcher's side of the guard; call ``look`` often, from the main thread."""

    def __init__(
        self, *, run_dir: Path, rings: Path, log: EventLog, say: Say, flags: Sequence[str] = ()
    ) -> None:
        self._command = [sys.executable, "-P", "-m", "holdfast.guard.watcher"]
        self._command += ["--run-dir", str(run_dir), "--rings", str(rings), "--node", str(log.node)]
        self._command += ["--parent", str(os.getpid()), *flags]
        self._log = log
        self._say = say
        self._reporting: Reporting | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._deaths_in_row = 0
        self._started_s = 0.0
        self._not_before_s = 0.0

    @property
    def pid(self) -> int | None:
        """Process id of the guard, while there is one."""
        return self._process.pid if self._process is not None else None

    def report(self, reporting: Reporting | None) -> None:
        """Have the guard report, or be reported to; one that was told otherwise is replaced."""
        if reporting != self._reporting:
            self.stop()
            self._process = None
            self._reporting = reporting

    def look(self) -> None:
        """Start the guard if there is none and it is time to."""
        now_s = time.monotonic()
        if self._process is not None and self._process.poll() is not None:
            self._mourn(self._process, now_s)
        if self._process is None and now_s >= self._not_before_s:
            self._start(now_s)

    def stop(self) -> None:
        """End the guard, giving it two seconds for its last rows."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            self._process.terminate()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the guard at once."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.kill()
            self._process.wait()

    def _start(self, now_s: float) -> None:
        self._started_s = now_s
        told = self._reporting
        try:
            self._process = subprocess.Popen(
                [*self._command, *(told.flags() if told is not None else [])],
                # The token is the guard's alone: whoever is on the machine can read a command line.
                env=os.environ | ({TOKEN_ENV: told.token} if told is not None else {}),
                pass_fds=[told.listen_fd] if told is not None and told.listen_fd is not None else [],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            threading.Thread(target=self._relay, args=[self._process.stderr], daemon=True).start()
        except OSError as error:  # No memory or no process to be had; try again later.
            self._say.once("guard start", f"cannot start the guard: {error.strerror}; training goes on")
            self._not_before_s = now_s + _PAUSE_S[-1]

    def _relay(self, lines: IO[bytes]) -> None:
        """Pass on what the guard has to say; it must never wait for a terminal itself."""
        with lines:
            for line in lines:
                text = line.decode(errors="replace")
                # Else it is the traceback of its death, or a file that the launcher could not write either.
                if text.startswith(GREETING) and not text.endswith("training goes on\n"):
                    self._say.raw(text)

    def _mourn(self, process: subprocess.Popen[bytes], now_s: float) -> None:
        code, signal_name = shell_code(process.returncode)
        self._process = None
        self._deaths_in_row = 1 if now_s - self._started_s > 60 else self._deaths_in_row + 1
        self._not_before_s = now_s + _PAUSE_S[min(self._deaths_in_row - 1, len(_PAUSE_S) - 1)]
        self._log.append(GuardDied(pid=process.pid, exit_code=code, signal=signal_name))
        self._say.once(
            "guard death",
            f"the guard ended ({signal_name or f'exit code {code}'}); training goes on, another is started",
        )
