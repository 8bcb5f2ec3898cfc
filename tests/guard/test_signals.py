"""Signals to the launcher: the first asks, the second or the clock ends it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

PROGRAM = """
import os, signal, sys, time
from holdfast.guard.signals import SignalWatch, Stopped
kill_all = lambda: print("killed all", flush=True)
watch = SignalWatch(names=sys.argv[1], limit_s=float(sys.argv[2]), kill_all=kill_all)
try:
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
except Stopped as stop:
    print(stop, watch.received.name, flush=True)
    if sys.argv[3] == "close":
        watch.close()
    if sys.argv[3] != "leave":
        while True:
            time.sleep(0.01)
"""


class Launcher:
    """A process that watches its signals."""

    def __init__(self, *, names: str = "SIGTERM, SIGINT", limit_s: float = 60.0, then: str = "stay") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, names, str(limit_s), then], stdout=subprocess.PIPE, text=True
        )
        assert self.line() == "ready"

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> int:
        """Wait for the end and return its code."""
        self.process.communicate(timeout=30)
        return self.process.returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_becomes_an_exception(number: signal.Signals) -> None:
    """The main thread gets to clean up and leave by itself."""
    launcher = Launcher(then="leave")
    launcher.process.send_signal(number)
    assert launcher.line() == f"stopped by {number.name} {number.name}"
    assert launcher.end() == 0


@pytest.mark.parametrize("then", ["stay", "close"])
def test_time_that_is_up_ends_everything(then: str) -> None:
    """A clean-up that is stuck is cut short, with the signal's code."""
    launcher = Launcher(limit_s=0.2, then=then)
    launcher.process.send_signal(signal.SIGTERM)
    assert [launcher.line(), launcher.line()] == ["stopped by SIGTERM SIGTERM", "killed all"]
    assert launcher.end() == 143


def test_a_second_signal_ends_everything_at_once() -> None:
    """With the code of the first; one that comes in the same moment is the same wish."""
    launcher = Launcher()
    launcher.process.send_signal(signal.SIGINT)
    assert launcher.line() == "stopped by SIGINT SIGINT"
    while launcher.process.poll() is None:
        launcher.process.send_signal(signal.SIGTERM)
        try:
            launcher.process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    assert launcher.line() == "killed all"
    assert launcher.end() == 130


def test_a_signal_that_was_not_named_is_not_ours() -> None:
    """It does what it would do without us."""
    launcher = Launcher(names="SIGTERM")
    launcher.process.send_signal(signal.SIGUSR1)
    assert launcher.end() == -signal.SIGUSR1


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    """``nohup holdfast run …`` survives the end of its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        launcher = Launcher(names="SIGHUP,SIGTERM", then="leave")
    finally:
        signal.signal(signal.SIGHUP, before)
    launcher.process.send_signal(signal.SIGHUP)
    launcher.process.send_signal(signal.SIGTERM)
    first = launcher.line()
    launcher.end()
    assert first == "stopped by SIGTERM SIGTERM"
