"""Kill a worker with SIGKILL, as the kernel does when memory runs out."""

from __future__ import annotations

import contextlib
import os
import signal


class Kill:
    """Ends the target; there is no relief."""

    via = "sigkill"

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def apply(self) -> None:
        """Kill the target."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def relieve(self) -> None:
        """Do nothing: the dead stay dead."""
