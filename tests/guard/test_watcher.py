"""The guard: what it makes of steps, and what it does when it is left alone."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from helpers import run_python, wait_until
from holdfast.guard.eventlog import append_line, encode, log_name
from holdfast.guard.sessions import end_sessions
from holdfast.guard.watcher import records_of, running_workers, summarise
from holdfast.job.ring import RingWriter, ring_path
from holdfast.observe.eventlog import read_events
from holdfast.telemetry import Step, Summary
from holdfast.values import (
    AnyEvent,
    AttemptEnded,
    AttemptStarted,
    GuardStarted,
    LauncherDied,
    RunEnded,
    RunStarted,
    Stamp,
    StepSeen,
)

LAUNCHER = """
import os, subprocess, sys
guard = [sys.executable, "-P", "-m", "holdfast.guard.watcher", "--parent", str(os.getpid()), *sys.argv[1:]]
subprocess.run(guard)
"""


LEADER = """
import subprocess
subprocess.Popen(["sleep", "60"], process_group=0)
beside = subprocess.Popen(["sleep", "60"])
print(flush=True)
beside.wait()
"""


class Guarded:
    """A launcher that only starts a guard, and the folders of its run."""

    def __init__(self, folder: Path, node: int) -> None:
        self.run_dir, self.rings = folder / "run", folder / "rings"
        self.run_dir.mkdir()
        self.rings.mkdir()
        self.log = self.run_dir / log_name(node)
        arguments = ["--run-dir", str(self.run_dir), "--rings", str(self.rings), "--node", str(node)]
        self.arguments = arguments
        self.launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, *arguments])

    def wait_for(self, kind: type) -> None:
        """Return when the log has such an event."""
        wait_until(lambda: self.log.exists() and kind in self.kinds(), kind.__name__)

    def kinds(self) -> list[type]:
        """Kinds of all events in the log."""
        return [type(record.event) for record in read_events(self.log).records]


@contextlib.contextmanager
def _guarded(folder: Path, node: int = 0) -> Iterator[Guarded]:
    guarded = Guarded(folder, node)
    try:
        yield guarded
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            for guard in psutil.Process(guarded.launcher.pid).children():
                guard.kill()
        guarded.launcher.kill()
        guarded.launcher.wait()


@contextlib.contextmanager
def _session() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a session, as a worker does."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _step(rank: int, step: int, duration_s: float) -> Step:
    return Step(rank=rank, step=step, ended_s=1.0, duration_s=duration_s)


def test_a_second_of_steps_becomes_one_row() -> None:
    """Last step and median time per rank; a rank's first step has no time."""
    steps = [_step(0, 4, 0.1), _step(0, 5, 0.3), _step(0, 6, 0.2), _step(1, 0, 0.0)]
    row = summarise(steps, node=2, attempt=1, lost=3)
    assert row == Summary(
        at=row.at,
        node=2,
        attempt=1,
        steps={"0": 6, "1": 0},
        duration_s={"0": 0.2},
        own_s={"0": 0.2},
        lost=3,
    )


def test_no_steps_make_an_empty_row() -> None:
    """No rank is invented."""
    row = summarise([], node=0, attempt=0, lost=0)
    assert (row.steps, row.duration_s) == ({}, {})


@pytest.mark.processes
def test_all_processes_of_a_session_are_ended_and_no_others() -> None:
    """The leader's helpers too, those in a group of their own as well; a stranger lives."""
    command = [sys.executable, "-c", LEADER]
    with (
        _session() as stranger,
        subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as leader,
    ):
        assert leader.stdout is not None
        leader.stdout.readline()
        helpers = psutil.Process(leader.pid).children()
        assert len(helpers) == 2
        # The leader is reaped beside, or it would stay as a zombie for all of the two seconds.
        reaper = threading.Thread(target=leader.wait)
        reaper.start()
        end_sessions([leader.pid])
        reaper.join()
        wait_until(lambda: not any(_is_alive(helper.pid) for helper in helpers), "the helpers' end")
        assert not _is_alive(leader.pid)
        assert _is_alive(stranger.pid)


def test_no_sessions_are_ended_where_none_are_given() -> None:
    """A process that belongs to nobody's list lives on."""
    with _session() as other:
        end_sessions([])
        assert _is_alive(other.pid)


@pytest.mark.processes
def test_steps_in_a_ring_become_events_and_rows(tmp_path: Path) -> None:
    """The first step of a rank is an event; every second with steps is a row."""
    with _guarded(tmp_path) as run:
        run.wait_for(GuardStarted)
        ring = RingWriter(ring_path(run.rings, 1), rank=1, attempt=2)
        ring.append(0, 10**9, 0)
        ring.append(1, 2 * 10**9, 10**9)
        run.wait_for(StepSeen)
        seen = read_events(run.log).records[-1]
        assert (seen.event, seen.stamp.attempt) == (StepSeen(rank=1, step=0), 2)
        summaries = run.run_dir / "summaries.jsonl"
        # A file is there before its first row is.
        wait_until(lambda: summaries.exists() and "\n" in summaries.read_text(), "the row")
        row = json.loads(summaries.read_text().splitlines()[0])
        assert (row["steps"], row["duration_s"], row["lost"]) == ({"1": 1}, {"1": 1.0}, 0)


@pytest.mark.processes
@pytest.mark.parametrize(
    "node",
    [
        0,
        pytest.param(
            1,
        ),
    ],
)
def test_a_guard_left_alone_ends_the_workers_of_its_own_node(tmp_path: Path, node: int) -> None:
    """It notes the launcher's death, ends what its own workers left, spares other nodes', and cleans up."""
    with _session() as mine, _session() as others, _guarded(tmp_path, node) as run:
        run.wait_for(GuardStarted)
        for number, worker in ((node, mine), (1 - node, others)):
            log = run.run_dir / log_name(number)
            _write(log, run.launcher.pid, RunStarted(run_id="x", argv=[], pid=run.launcher.pid))
            started = AttemptStarted(world_size=2, nodes=2, ranks=[number], pids=[worker.pid])
            _write(log, run.launcher.pid, started)
        reaper = threading.Thread(target=mine.wait)
        reaper.start()
        run.launcher.kill()
        run.launcher.wait()
        wait_until(lambda: not run.rings.exists(), "the end of the rings")
        run.wait_for(LauncherDied)
        was_alive = _is_alive(mine.pid), _is_alive(others.pid)
        mine.kill()
        reaper.join()
        assert was_alive == (False, True)


def test_only_the_workers_of_its_own_launcher_are_a_guards_business(tmp_path: Path) -> None:
    """Two runs may share a folder; the death of one launcher does not end the other's workers."""
    log = tmp_path / "events.jsonl"
    for launcher, worker in ((1, 11), (2, 22)):
        _write(log, launcher, RunStarted(run_id="x", argv=[], pid=launcher))
        _write(log, launcher, AttemptStarted(world_size=1, nodes=1, ranks=[0], pids=[worker]))
    assert running_workers(records_of(log, 1)) == [11]
    assert running_workers(records_of(log, 2)) == [22]
    _write(log, 1, AttemptEnded(reason="succeeded"))
    assert running_workers(records_of(log, 1)) == []
    assert running_workers(records_of(log, 2)) == [22]
    assert running_workers(records_of(log, 3)) == []


def _write(log: Path, launcher: int, event: AnyEvent) -> None:
    stamp = Stamp(schema=1, event_id=f"0-{launcher}-x", at="", host="a", node=0, attempt=0)
    append_line(log, encode(stamp, event))


@pytest.mark.processes
def test_a_broken_ring_does_not_end_the_guard(tmp_path: Path) -> None:
    """A writer that died while it made its ring leaves a piece; the other ranks are still watched."""
    with _guarded(tmp_path) as run:
        run.wait_for(GuardStarted)
        ring_path(run.rings, 0).write_bytes(b"HFRING1\0")
        RingWriter(ring_path(run.rings, 1), rank=1).append(0, 0, 0)
        guard = psutil.Process(run.launcher.pid).children()[0]
        wait_until(lambda: StepSeen in run.kinds() or not _is_alive(guard.pid), "a look of the guard")
        assert StepSeen in run.kinds()


@pytest.mark.processes
def test_a_stop_ends_the_guard_without_a_word_of_a_dead_launcher(tmp_path: Path) -> None:
    """SIGTERM from the launcher is the usual end; the rings are the launcher's to remove."""
    with _guarded(tmp_path) as run:
        run.wait_for(GuardStarted)
        guard = psutil.Process(run.launcher.pid).children()[0]
        guard.send_signal(signal.SIGINT)
        guard.terminate()
        run.launcher.wait()
        assert (run.kinds(), run.rings.exists()) == ([GuardStarted], True)


@pytest.mark.processes
def test_a_guard_whose_parent_died_before_it_started_cleans_up_too(tmp_path: Path) -> None:
    """A script of a few milliseconds leaves no rings in memory for ever."""
    (tmp_path / "rings").mkdir()
    arguments = ["--run-dir", str(tmp_path / "run"), "--rings", str(tmp_path / "rings"), "--node", "0"]
    run_python("-m", "holdfast.guard.watcher", "--attached", "--parent", "1", *arguments, cwd=tmp_path)
    assert not (tmp_path / "rings").exists()
    assert RunEnded in [type(record.event) for record in read_events(tmp_path / "run/events.jsonl").records]


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
