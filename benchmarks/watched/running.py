"""Starts the jobs of scenes, with the guard beside them, and returns what was told."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from holdfast.errors import InputError
from holdfast.lab.faults import parse_fault
from holdfast.lab.fork import Job, Lab
from holdfast.observe.eventlog import read_run
from holdfast.values import AnyEvent, JobHung, SuspectsNamed
from watched.sabotage_env import SABOTAGE_ENV
from watched.scenes import Scene

HERE = Path(__file__).resolve().parent.parent
HOLDFAST = Path(sys.executable).parent / "holdfast"
TOO_LONG_S = 100.0
NETWORK_STEPS = 140
NIC_BYTES_S = 100e6


def run(scene: Scene, run_dir: Path) -> list[AnyEvent]:
    """Run a scene and return its events."""
    if "via=namespace" in scene.fault:
        _run_in_namespaces(scene, run_dir)
    else:
        _run_by_launcher(scene, run_dir)
    return read(run_dir)


def read(run_dir: Path) -> list[AnyEvent]:
    """Return the events so far."""
    try:
        return [record.event for record in read_run(run_dir).records]
    except InputError:
        return []


def _run_by_launcher(scene: Scene, run_dir: Path) -> None:
    """Start the job by ``holdfast run`` or ``inject``; end it when somebody was named."""
    process = subprocess.Popen(
        _command(scene, run_dir),
        env=os.environ | environment(scene),
        cwd=HERE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until_s = time.monotonic() + TOO_LONG_S
    try:
        while process.poll() is None and time.monotonic() < until_s:
            time.sleep(0.5)
            if scene.way != "none" and any(isinstance(e, SuspectsNamed | JobHung) for e in read(run_dir)):
                break
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _command(scene: Scene, run_dir: Path) -> list[str]:
    script = f"watched/{scene.job}.py"
    what = [script] if (HERE / script).exists() else ["-m", f"holdfast.lab.jobs.{scene.job}"]
    flags = ["--run-dir", str(run_dir), "--nproc-per-node", str(scene.ranks)]
    verb = ["inject", "--fault", scene.fault] if scene.way == "lab" else ["run"]
    return [str(HOLDFAST), *verb, *flags, *what, *scene.arguments]


def environment(scene: Scene) -> dict[str, str]:
    """Return what the job finds in its environment."""
    sabotage = {SABOTAGE_ENV: scene.fault} if scene.way == "script" else {}
    return {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1", **sabotage, **scene.env}


def _run_in_namespaces(scene: Scene, run_dir: Path) -> None:
    """Let the lab start the workers, each in a network namespace of its own, and a guard beside them."""
    guards: list[subprocess.Popen[bytes]] = []

    def start_guard(folder: Path, pids: dict[int, int]) -> None:
        command = [sys.executable, "-m", "holdfast.guard.watcher", "--attached", "--node", "0"]
        command += ["--run-dir", str(run_dir), "--rings", str(folder / "rings"), "--parent", str(os.getpid())]
        guards.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    job = Job(
        module=f"holdfast.lab.jobs.{scene.job}",
        ranks=scene.ranks,
        args=[*scene.arguments, "--steps", str(NETWORK_STEPS)],
        nic_bytes_s=NIC_BYTES_S,
        in_namespaces=True,
    )
    try:
        with Lab() as lab:
            lab.run(job, [parse_fault(scene.fault)], timeout_s=TOO_LONG_S, on_start=start_guard)
    finally:
        for guard in guards:
            guard.terminate()
            guard.wait()
