"""``holdfast run`` with workers that survive each other: who may die, and what it says and returns."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from runs import Run, running, wait_until
from survivals import Scene

from holdfast.values import (
    AttemptEnded,
    AttemptStarted,
    Death,
    JobStopped,
    Regrouped,
    RunEnded,
    WorkerDied,
)

pytestmark = [pytest.mark.processes, pytest.mark.alone]


def test_a_job_survives_the_death_of_a_worker(tmp_path: Path) -> None:
    """The run ends with 0; the death and what followed are logged and said once."""
    scene = Scene(tmp_path)
    with running(tmp_path, *scene.flags(3), **scene.env()) as run:
        scene.wait_for([0, 1, 2], generation=0)
        os.kill(run.worker_pids()[1], signal.SIGKILL)
        scene.wait_for([0, 2], generation=1)
        scene.finish()
        assert run.finish() == 0
    assert "holdfast: worker 1.0 (rank 1) died: SIGKILL; the others go on" in run.stderr.splitlines()
    assert "holdfast: 2 of 3 workers go on from step 0" in run.stderr.splitlines()
    assert run.stderr.count("go on") == 2
    events = [record.event for record in run.events().records]
    assert [event.death.rank for event in events if isinstance(event, WorkerDied)] == [1]
    assert [event for event in events if isinstance(event, Regrouped)] == [
        Regrouped(generation=0, members=[0, 1, 2], version=0, places=[0, 1, 2], microbatches=2, dead=[]),
        Regrouped(generation=1, members=[0, 2], version=0, places=[0, 2], microbatches=2, dead=[1]),
    ]
    assert [event.reason for event in events if isinstance(event, AttemptEnded)] == ["succeeded"]
    assert [event.exit_code for event in events if isinstance(event, RunEnded)] == [0]
    assert run.left_behind() == []


def test_a_worker_that_raises_is_survived_too(tmp_path: Path) -> None:
    """Its traceback goes into its log, its last line to the terminal."""
    scene = Scene(tmp_path)
    with running(tmp_path, *scene.flags(2), **scene.env(BAD="1")) as run:
        scene.wait_for([0, 1], generation=0)
        scene.tell("raise")
        scene.wait_for([0], generation=1)
        scene.finish()
        assert run.finish() == 0
    said = "holdfast: worker 1.0 (rank 1) died: ValueError: the input is broken; the others go on"
    assert said in run.stderr.splitlines()
    assert "Traceback" not in run.output
    assert "ValueError: the input is broken" in (run.run_dir / "logs/attempt_0/rank_1.log").read_text()
    (death,) = _deaths(run)
    assert (death.exit_code, death.error) == (1, "ValueError: the input is broken")


def test_a_job_of_which_nobody_is_left_has_failed(tmp_path: Path) -> None:
    """The exit code is that of the first to die, and every death is logged once."""
    scene = Scene(tmp_path)
    with running(tmp_path, *scene.flags(2), **scene.env(BAD="1")) as run:
        scene.wait_for([0, 1], generation=0)
        pids = run.worker_pids()
        os.kill(pids[0], signal.SIGKILL)
        scene.wait_for([1], generation=1)
        scene.tell("raise")
        assert run.finish() == 137
    assert re.match(r"holdfast: rank 0 on host \S+ died first: SIGKILL", run.stderr.splitlines()[-1])
    assert sorted(death.rank for death in _deaths(run)) == [0, 1]
    assert run.left_behind() == []


def test_a_job_that_cannot_go_on_says_why(tmp_path: Path) -> None:
    """When a stage is lost, the reason is said in one line and logged, and the run fails."""
    scene = Scene(tmp_path)
    with running(tmp_path, *scene.flags(2), **scene.env(PP="2")) as run:
        scene.wait_for([0, 1], generation=0)
        os.kill(run.worker_pids()[1], signal.SIGKILL)
        assert run.finish() == 137
    reason = "every worker of stage 1 is gone (0.1), and with them their parameters"
    assert run.stderr.count(f"holdfast: training cannot go on: {reason}") == 1
    assert "holdfast: rank 0 ended as a consequence" in run.stderr.splitlines()
    (stopped,) = [r.event for r in run.events().records if isinstance(r.event, JobStopped)]
    assert stopped.reason.startswith(reason)


def test_a_death_before_the_job_can_survive_it_ends_the_attempt(tmp_path: Path) -> None:
    """All workers start again, and meet in a new hub with a new token."""
    scene = Scene(tmp_path)
    flags = ("--max-restarts", "1", *scene.flags(2))
    with running(tmp_path, *flags, **scene.env(BAD="1", EARLY="0")) as run:
        scene.wait_for([0, 1], generation=0)
        scene.finish()
        assert run.finish() == 0
    assert run.stderr.count("restarting all workers (1 of 1)") == 1
    assert "go on" not in run.stderr
    events = [record.event for record in run.events().records]
    assert [event.reason for event in events if isinstance(event, AttemptEnded)] == ["failed", "succeeded"]
    assert len(set(re.findall(r"token (\w+)", run.stdout))) == 2


def test_without_restarts_such_a_death_is_the_runs_own_code(tmp_path: Path) -> None:
    """The others wait for the first generation in vain, and are stopped."""
    scene = Scene(tmp_path)
    with running(tmp_path, *scene.flags(2), **scene.env(BAD="1", EARLY="0")) as run:
        assert run.finish() == 3
    assert [death.rank for death in _deaths(run)] == [1]
    assert run.left_behind() == []


def test_an_attempt_of_which_nobody_is_left_is_followed_by_another(tmp_path: Path) -> None:
    """Restarts are for what cannot be survived."""
    scene = Scene(tmp_path)
    with running(tmp_path, "--max-restarts", "1", *scene.flags(2), **scene.env()) as run:
        scene.wait_for([0, 1], generation=0)
        scene.forget()
        for pid in run.worker_pids():
            os.kill(pid, signal.SIGKILL)
        scene.wait_for([0, 1], generation=0)
        scene.finish()
        assert run.finish() == 0
    assert sum(isinstance(record.event, AttemptStarted) for record in run.events().records) == 2


def test_a_stopped_run_does_not_speak_of_survivors(tmp_path: Path) -> None:
    """Workers end one after the other when told to; that is no death."""
    scene = Scene(tmp_path)
    with running(tmp_path, *scene.flags(3), **scene.env()) as run:
        scene.wait_for([0, 1, 2], generation=0)
        run.process.send_signal(signal.SIGTERM)
        assert run.finish() == 143
    assert "go on" not in run.stderr
    assert _deaths(run) == []
    wait_until(lambda: run.left_behind() == [], 10)


def _deaths(run: Run) -> list[Death]:
    return [record.event.death for record in run.events().records if isinstance(record.event, WorkerDied)]
