"""A process that dies with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from helpers import run_python, wait_until

pytestmark = pytest.mark.processes

CHILD = """
import os, sys, time
from holdfast.job.deathsig import die_with_parent
die_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = """
import os, subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1], str(os.getpid())])
"""


def test_a_killed_parent_takes_its_child_along() -> None:
    """The kernel sees to it, so even kill -9 of the parent does."""
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert psutil.pid_exists(child)
        os.kill(parent.pid, signal.SIGKILL)
        wait_until(lambda: not _is_alive(child), "the child's death")


def test_a_parent_that_is_gone_already_ends_the_child_at_once(tmp_path: Path) -> None:
    """It ends as if the signal had come, with 128 + 9."""
    done = run_python("-c", CHILD, "1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (137, "")


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
