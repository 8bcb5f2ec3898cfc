"""Die when the parent dies, by the kernel's own hand (PR_SET_PDEATHSIG); survives exec."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, death_signal: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send the signal when the parent is gone; exit at once if it is gone already.

    The kernel watches the *thread* that started us, so the parent must start its children from a thread
    that lives as long as it does.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, death_signal.value, 0, 0, 0)
    if os.getppid() != parent:  # It died before the call above could tell the kernel.
        os._exit(128 + death_signal.value)
