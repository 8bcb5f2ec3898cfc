"""How far a run got, told by bytes that outlive it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from holdfast.job.opening import say_lost
from holdfast.job.reached import Progress, Reached, read_reached


def test_the_last_step_is_there_after_a_kill(tmp_path: Path) -> None:
    """By a process that had no time to say goodbye."""
    pid = os.fork()
    if pid == 0:
        reached = Reached(tmp_path)
        for step in range(1, 100):
            reached.note(step)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    found = read_reached(tmp_path)
    assert found is not None
    assert found.step == 99
    assert abs(found.at_s - time.time()) < 60


def test_nothing_or_nonsense_is_no_progress(tmp_path: Path) -> None:
    """Nor does a folder that cannot be written to disturb anybody."""
    assert read_reached(tmp_path) is None
    (tmp_path / "reached").write_bytes(b"short")
    assert read_reached(tmp_path) is None
    Reached(tmp_path / "reached" / "below a file").note(3)


def test_what_was_lost_is_said_in_steps_and_seconds() -> None:
    """Of training, from the checkpoint on."""
    before = Progress(step=137, at_s=1000.0)
    assert (
        say_lost(before, 120, 996.6)
        == "goes on from step 120: 17 steps of the last run, 3.4 s of training, are lost"
    )
    assert say_lost(before, 136, 0.0) == "goes on from step 136: 1 step of the last run is lost"
    assert say_lost(before, 137, 1000.0) == "goes on from step 137: 0 steps of the last run are lost"
