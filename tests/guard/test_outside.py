"""The guard's door to the outside, where no launcher is left to have the last word."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from helpers import wait_until
from holdfast.guard.posting import TOKEN_ENV
from shipmentserver import serving

PARENT = """
import os, subprocess, sys
guard = [sys.executable, "-P", "-m", "holdfast.guard.watcher", "--parent", str(os.getpid()), *sys.argv[1:]]
subprocess.run(guard)
"""


@contextlib.contextmanager
def _parent(folder: Path, *flags: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that only starts a guard; both are gone at the end."""
    (folder / "rings").mkdir()
    (folder / "named").mkdir()
    places = ["--run-dir", str(folder / "named"), "--rings", str(folder / "rings"), "--node", "0"]
    command = [sys.executable, "-c", PARENT, *places, *flags]
    guards: list[psutil.Process] = []
    with subprocess.Popen(command, env=os.environ | env, stderr=subprocess.DEVNULL) as parent:
        try:
            wait_until(lambda: psutil.Process(parent.pid).children(), "the guard")
            guards = psutil.Process(parent.pid).children()
            yield parent
        finally:
            parent.kill()
            psutil.wait_procs(guards, timeout=20)
            for guard in guards:
                with contextlib.suppress(psutil.NoSuchProcess):
                    guard.kill()


@pytest.mark.processes
@pytest.mark.parametrize(("flags", "last"), [((), "launcher_died"), (("--attached",), "run_ended")])
def test_the_end_is_told_by_the_guard_where_nobody_else_can(
    tmp_path: Path, flags: tuple[str, ...], last: str
) -> None:
    """Under other launchers the environment names the server, and the folder's name the run."""
    with serving() as server:
        told = () if flags else ("--server", server.url, "--run-key", "k")
        env = {"HOLDFAST_SERVER": server.url} if flags else {}
        with _parent(tmp_path, *flags, *told, **env, **{TOKEN_ENV: "t"}) as parent:
            wait_until(lambda: "guard_started" in server.names, "the guard's first event")
            parent.kill()
            wait_until(lambda: last in server.names, "the last event")
        [run] = {(each.run.key, each.run.name) for each in server.shipments}
        assert run[1] == "named"
        assert (run[0] == "k") is not bool(flags)
        assert set(server.tokens) == {"Bearer t"}


@pytest.mark.processes
def test_a_server_that_makes_no_sense_does_not_stop_a_guard(tmp_path: Path) -> None:
    """Under other launchers nobody has checked it before."""
    with _parent(tmp_path, "--attached", HOLDFAST_SERVER="nonsense"):
        log = tmp_path / "named" / "events.jsonl"
        wait_until(lambda: log.exists() and b"guard_started" in log.read_bytes(), "the guard's first event")
