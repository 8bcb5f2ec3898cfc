"""Stop a process by SIGSTOP: for a share of the time (a slow CPU without privileges), or for good (a hang).

A helper process does the stopping and continues the target when it ends, so that even the death of the
lab leaves nobody stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from holdfast.lab.injectors import helpers

PERIOD_S = 0.02
"""Stop and run together; steps shorter than this are hit unevenly, so judge a duty by means."""
_LONG_S = 3600.0


class Duty:
    """The target runs 1/severity of the time."""

    via = "sigstop"

    def __init__(self, pid: int, severity: float) -> None:
        self._pid = pid
        self._run_s = PERIOD_S / severity
        self._stop_s = PERIOD_S - self._run_s
        self._helper: subprocess.Popen[bytes] | None = None

    def apply(self) -> None:
        """Begin to stop and continue the target."""
        self._helper = helpers.start("duty", self._pid, self._stop_s, self._run_s)

    def relieve(self) -> None:
        """Let the target run."""
        if self._helper is not None:
            helpers.end(self._helper)
            self._helper = None
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGCONT)


class Hang(Duty):
    """The target does not run at all."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid, severity=1.0)
        self._stop_s, self._run_s = _LONG_S, 0.0

    def apply(self) -> None:
        """Stop the target now; the helper keeps it so."""
        os.kill(self._pid, signal.SIGSTOP)
        super().apply()
