"""A helper process of the lab, run by path with the standard library only, so that it starts in no time.

``helper.py PARENT busy CORE`` spins on a core; ``helper.py PARENT duty PID STOP_S RUN_S`` stops and
continues a process in turn. Both end with their parent; a duty that ends leaves its target running.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from types import FrameType


def main(argv: list[str]) -> None:
    """Do one of the two for ever."""
    parent, what, *numbers = argv
    _end_with(int(parent))
    if what == "busy":
        spin(int(numbers[0]))
    else:
        duty(int(numbers[0]), stop_s=float(numbers[1]), run_s=float(numbers[2]))


def spin(core: int) -> None:
    """Use up a core."""
    os.sched_setaffinity(0, {core})
    while True:
        pass


def duty(pid: int, *, stop_s: float, run_s: float) -> None:
    """Stop a process for ``stop_s``, let it run for ``run_s``, and so on; ``run_s`` 0 holds it stopped."""
    target = os.pidfd_open(pid)  # A number may be given to another process, a descriptor is not.

    def leave(number: int, frame: FrameType | None) -> None:
        signal.pidfd_send_signal(target, signal.SIGCONT)
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    turn_at_s = time.monotonic()
    while True:
        signal.pidfd_send_signal(target, signal.SIGSTOP)
        turn_at_s = _sleep_until(turn_at_s + stop_s)
        if run_s > 0:
            signal.pidfd_send_signal(target, signal.SIGCONT)
            turn_at_s = _sleep_until(turn_at_s + run_s)


def _sleep_until(until_s: float) -> float:
    time.sleep(max(0.0, until_s - time.monotonic()))
    return until_s


def _end_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM.value, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        sys.exit(0)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ProcessLookupError:  # The target is gone.
        sys.exit(0)
