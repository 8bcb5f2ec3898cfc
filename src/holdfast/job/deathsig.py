"""Die when the parent dies, by the kernel's own hand (PR_SET_PDEATHSIG); survives exec."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def ask_for_death_signal(number: signal.Signals) -> None:
    """Have the kernel send the signal when the parent is gone.

    The kernel watches the *thread* that started us, so the parent must start its children from a thread
    that lives as long as it does. A parent that is gone already sends nothing: look after the call.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number.value, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Be killed when the parent is gone, at once if it is gone already."""
    ask_for_death_signal(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)
