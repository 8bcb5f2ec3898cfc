"""Runs a scene for real and returns the profile that was made of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.diagnose.case import Case
from holdfast.findings import Suspect
from holdfast.guard.jobprofile import read_profile, to_case
from holdfast.observe.eventlog import read_run
from holdfast.telemetry import Summary
from holdfast.values import AnyEvent, JobHung
from profiled.scenes import Scene

HERE = Path(__file__).resolve().parent.parent
HOLDFAST = Path(sys.executable).parent / "holdfast"
SETTLED_STEPS = 40
"""Steps that a job has made before it is profiled: what is wrong has begun by then."""
TOO_LONG_S = 120.0


@dataclass(frozen=True)
class Run:
    """What came of a scene."""

    case: Case | None
    """None: nobody could be profiled, for the job hangs."""
    suspects: list[Suspect]
    took_s: float
    """From the request until the verdict."""


class RunError(Exception):
    """A job that did not do what the scene needs."""


def run(scene: Scene, run_dir: Path) -> Run:
    """Run a scene and profile it; the job is ended afterwards."""
    with _store(scene) as port, _job(scene, run_dir, port) as job:
        if scene.is_stuck:
            return _wait_for_hang(run_dir, job)
        _wait_for_steps(run_dir, job)
        began_s = time.monotonic()
        words = [str(HOLDFAST), "profile", str(run_dir), "--json"]
        asked = subprocess.run(words, capture_output=True, timeout=TOO_LONG_S, check=False)
        took_s = time.monotonic() - began_s
        if asked.returncode:
            raise RunError(asked.stderr.decode().strip())
        (path,) = run_dir.glob("profiles/*/job.json")
        case = to_case(read_profile(path), path.parent)
        return Run(case, case.verdict.suspects, took_s)


@contextlib.contextmanager
def _store(scene: Scene) -> Iterator[int]:
    store = subprocess.Popen(
        [sys.executable, "-m", "profiled.store", *scene.store], cwd=HERE, stdout=subprocess.PIPE
    )
    assert store.stdout is not None
    try:
        yield int(store.stdout.readline())
    finally:
        store.kill()
        store.wait()
        store.stdout.close()


@contextlib.contextmanager
def _job(scene: Scene, run_dir: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    what = ["profiled/job.py", "--store", str(port)]
    if scene.module:
        what = ["-m", f"holdfast.lab.jobs.{scene.module}"]
    faults = [word for fault in scene.faults for word in ("--fault", fault)]
    verb = ["inject", *faults] if faults else ["run"]
    flags = ["--run-dir", str(run_dir), "--nproc-per-node", str(scene.ranks)]
    stuck = ["--wrong", "stuck", "--ranks", str(scene.guilty[0]), "--at", "30"] if scene.is_stuck else []
    process = subprocess.Popen(
        [str(HOLDFAST), *verb, *flags, *what, *scene.arguments, *stuck],
        env=os.environ | {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"},
        cwd=HERE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for_steps(run_dir: Path, job: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + TOO_LONG_S
    while _steps(run_dir) < SETTLED_STEPS:
        if job.poll() is not None or time.monotonic() > until_s:
            raise RunError(f"{run_dir}: the job ended or made no steps")
        time.sleep(0.2)


def _steps(run_dir: Path) -> int:
    try:
        last = (run_dir / "summaries.jsonl").read_bytes().splitlines()[-1]
        return min(msgspec.json.decode(last, type=Summary).steps.values())
    except (OSError, IndexError, ValueError):
        return 0


def _wait_for_hang(run_dir: Path, job: subprocess.Popen[bytes]) -> Run:
    began_s = time.monotonic()
    while time.monotonic() < began_s + TOO_LONG_S and job.poll() is None:
        time.sleep(0.5)
        hung = [event for event in events(run_dir) if isinstance(event, JobHung)]
        if hung:
            return Run(None, hung[0].suspects, time.monotonic() - began_s)
    raise RunError(f"{run_dir}: no hang was told")


def events(run_dir: Path) -> list[AnyEvent]:
    """Return what was told so far."""
    try:
        return [record.event for record in read_run(run_dir).records]
    except Exception:  # It is just being written.
        return []
