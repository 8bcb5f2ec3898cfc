"""Small things that many unit tests need: a place to hear what was said, deaths, records, processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.faults import Fault
from holdfast.findings import ChangePoint, Suspect
from holdfast.guard.say import Say
from holdfast.values import (
    AnyEvent,
    Applied,
    AttemptEnded,
    AttemptStarted,
    Death,
    Decided,
    Dropped,
    FaultInjected,
    FaultRelieved,
    GuardDied,
    GuardStarted,
    IncidentClosed,
    JobHung,
    JobRelieved,
    JobSlowed,
    JobStopped,
    LauncherDied,
    NodeLeft,
    Ordered,
    Probed,
    Profiled,
    Regrouped,
    RunEnded,
    RunStarted,
    Stamp,
    StepSeen,
    SuspectsNamed,
    Verified,
    WorkerDied,
    WorkerHung,
    WorkerReturned,
)

PATIENCE_S = 20.0
"""How long a test waits for something that must happen; never how long it should take."""


class Ears:
    """A ``Say`` that speaks into a pipe, and what was heard there."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self.say = Say(self._write_fd)
        self._heard = b""

    def lines(self) -> list[str]:
        """Return all lines said so far."""
        try:
            while data := os.read(self._read_fd, 1 << 16):
                self._heard += data
        except BlockingIOError:
            pass
        return self._heard.decode().splitlines()

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self._read_fd)
        os.close(self._write_fd)


def wait_until(is_true: Callable[[], object], what: str = "the condition") -> None:
    """Return when the condition holds; fail when it never does."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline_s, f"{what} did not come true within {PATIENCE_S} s"
        time.sleep(0.005)


def run_python(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run the interpreter of the tests to its end, without the variables of an outer job."""
    foreign = (
        "RANK",
        "LOCAL_RANK",
        "TORCHELASTIC_",
        "HOLDFAST_RINGS",
        "HOLDFAST_LAUNCHER_",
        "HOLDFAST_ATTACHED_",
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=clean | (env or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


def make_death(**fields: Any) -> Death:
    """Return a death with every field set, changed where asked."""
    usual: dict[str, Any] = {
        "rank": 1,
        "local_rank": 1,
        "node": 0,
        "host": "a",
        "pid": 42,
        "exit_code": 1,
        "seen_s": 5.0,
    }
    return Death(**(usual | fields))


STAMP = Stamp(schema=1, event_id="0-7-1", at="2026-11-15T19:40:12+00:00", host="a", node=0, attempt=2)
FAULT = Fault(kind="slow_link", target=(0, 1), at_step=3, for_steps=2, severity=1.5, via="pacing")
CHANGE = ChangePoint(
    step=7, detected_step=10, before_s=0.5, after_s=1.0, direction="slow", is_slow=True, confidence=0.99
)
SUSPECT = Suspect(
    ranks=[1], hosts=["a"], cause="compute", slowdown=2.0, confidence=0.9, victims=[0], evidence=["x"]
)
EVENTS: tuple[AnyEvent, ...] = (
    RunStarted(run_id="x", argv=["train.py", "--name", "grün"], pid=7),
    AttemptStarted(world_size=4, nodes=2, ranks=[0, 1], pids=[8, 9]),
    WorkerDied(death=make_death(signal="SIGKILL", error="ValueError: \n 'x' \u2028", traceback="a\nb\n")),
    AttemptEnded(reason="failed", first=make_death()),
    AttemptEnded(reason="succeeded"),
    Regrouped(generation=1, members=[0, 2], version=37, dead=[3, 1]),
    WorkerReturned(rank=3, pid=4713),
    JobStopped(reason="every worker of stage 1 is gone"),
    GuardStarted(pid=1),
    GuardDied(pid=1, exit_code=137, signal="SIGKILL"),
    LauncherDied(pid=1),
    StepSeen(rank=3, step=0),
    WorkerHung(rank=3, pid=9, phase="compute", op="1F0.2", waited_s=2.5, evidence="inside it for 2.5 s"),
    JobSlowed(change=CHANGE),
    JobRelieved(change=CHANGE),
    SuspectsNamed(since_step=7, suspects=[SUSPECT, SUSPECT]),
    SuspectsNamed(since_step=7, suspects=[]),
    Profiled(
        order="b", why="a person asked", first_step=10, last_step=19, suspects=[], missing=[1], blocked_s=0.5
    ),
    Probed(order="a", ranks=[0, 1], suspects=[], silent=["rank 1 did not answer"], gemm_s={"0": 0.005}),
    JobHung(lasted_s=12.5, limit_s=10.0, suspects=[SUSPECT], stacks={"1": ["train.py:3 main"]}),
    JobHung(lasted_s=12.5, limit_s=10.0, suspects=[]),
    Decided(
        number=1,
        level="S2",
        since_step=7,
        speeds={1: 0.5},
        gain=0.4,
        healthy_s=0.5,
        saved_s=9.0,
        lost_s=12.0,
        price_s=0.3,
        outlook_s=60.0,
        is_dry=True,
    ),
    Decided(
        number=2,
        level="S3",
        since_step=7,
        speeds={1: 0.5, 2: 0.7},
        moves=[(1, 2), (2, 1)],
        gain=0.4,
        healthy_s=0.5,
        saved_s=9.0,
        lost_s=12.0,
        price_s=0.3,
        outlook_s=60.0,
    ),
    Applied(number=1, level="S2", version=12, pause_s=0.2),
    Verified(number=1, level="S2", promised=0.5, gained=0.4, healthy_s=0.1, is_enough=True),
    Ordered(order="7", what="act S2", who="the page", outcome="done", is_done=True),
    Dropped(number=1, level="S2", reason="the workers did not meet within 60 s"),
    NodeLeft(ranks=[2, 3], scheduler="no scheduler to tell"),
    IncidentClosed(since_step=7, lasted_s=80.0, lost_s=14.0, paid_s=0.5),
    FaultInjected(fault=FAULT, step=3, via="pacing"),
    FaultRelieved(fault=FAULT, step=5),
    RunEnded(exit_code=0, reason="succeeded"),
)
"""At least one event of every kind, with awkward text in it."""
