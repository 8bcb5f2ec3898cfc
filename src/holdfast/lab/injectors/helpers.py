"""Start and end helper processes; each has a session of its own, so the scheduler counts it as one rival."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_SCRIPT = Path(__file__).with_name("helper.py")


def start(*words: object) -> subprocess.Popen[bytes]:
    """Start a helper that ends when the calling thread does."""
    command = [sys.executable, "-I", "-S", str(_SCRIPT), str(os.getpid()), *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


def end(helper: subprocess.Popen[bytes]) -> None:
    """End a helper and wait until it is gone."""
    helper.terminate()
    try:
        helper.wait(timeout=2)
    except subprocess.TimeoutExpired:
        helper.kill()
        helper.wait()
