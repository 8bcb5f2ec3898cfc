"""torchft: one of N replicas (one rank each) is killed -9; how long do the others stand still?

The victim's neighbours in the collective fail at once; with four replicas or more the others sit in it until
the process group's time-out (60 s by default), and the quorum waits for them. With two or three replicas it
waits for the lighthouse to give the dead one up (5 s). With ``--tuned`` the times are as short as
they can be while replicas share busy cores.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from rivals import scene
from rivals.pause import Note, Pause, judge, read_notes

MISSING = (
    "torchft is not installed: pip install --no-deps torchft, then "
    "pip install opentelemetry-api opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
)
PATIENCE_S = 180.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Times:
    """The times of a torchft job; what is empty keeps torchft's default."""

    lighthouse_ms: dict[str, int]
    """Of the lighthouse: heartbeat_timeout_ms (5000), join_timeout_ms (60000), quorum_tick_ms (100)."""
    manager_s: dict[str, float]
    """Of the manager: timeout, quorum_timeout, connect_timeout (60 each), heartbeat_interval (0.1). Its
    ``timeout`` is also the process group's."""


DEFAULTS = Times(lighthouse_ms={}, manager_s={})
# What bounds these is the join time-out: a live replica that comes to a quorum later than that is left out,
# heals, and is late again. 4 replicas on 2 cores ran with 150 ms until other work kept the cores busy; then
# they left each other out for good. The process group's time-out is not waited for: the quorum goes on
# without those that still sit in the broken collective, and they come back when its sockets are closed.
TUNED = Times(
    lighthouse_ms={"heartbeat_timeout_ms": 200, "join_timeout_ms": 500, "quorum_tick_ms": 10},
    manager_s={"timeout": 1.0, "quorum_timeout": 10.0, "connect_timeout": 5.0, "heartbeat_interval": 0.02},
)


def unavailable() -> str | None:
    """Return the line that says why torchft cannot run here, or None if it can."""
    needed = ("torchft", "opentelemetry")
    return MISSING if any(importlib.util.find_spec(name) is None for name in needed) else None


def measure(*, workers: int, steps: int, kill_at_s: float | None, seed: int, tuned: bool) -> Pause:
    """Run the job, kill one replica ``kill_at_s`` after the warm-up (drawn if None), and say what it cost."""
    name = "torchft tuned" if tuned else "torchft"
    if reason := unavailable():
        return Pause(
            name=name,
            pause_s=None,
            first_step_s=None,
            usual_step_s=None,
            steps_lost=0,
            finished=False,
            remark=reason,
        )
    with scene.run_folder() as folder:
        job = Job(folder, workers=workers, steps=steps, seed=seed, times=TUNED if tuned else DEFAULTS)
        job.begin()
        return job.break_one(name, scene.victim(seed, workers), scene.moment_s(seed, kill_at_s))


def count_alarms(*, workers: int, steps: int, seed: int, times: Times) -> int:
    """Run the job without a fault, and count the steps that were discarded or made by fewer than all."""
    with scene.run_folder() as folder:
        job = Job(folder, workers=workers, steps=steps, seed=seed, times=times)
        job.begin()
        if not scene.wait_until(job.is_finished, PATIENCE_S):
            raise RuntimeError(f"not finished in {PATIENCE_S:.0f} s: {scene.tail(folder)}")
        return sum(job.is_alarm(note) for note in read_notes(folder))


class Job:
    """A lighthouse and its replicas."""

    def __init__(self, folder: Path, *, workers: int, steps: int, seed: int, times: Times) -> None:
        self._folder, self._workers, self._steps, self._seed = folder, workers, steps, seed
        self._times = times
        self._port = _free_port()
        self._replicas: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        """Start all, and let the first step begin when all are ready."""
        flags = [f"--{name}={value}" for name, value in self._times.lighthouse_ms.items()]
        program = str(Path(sysconfig.get_path("scripts")) / "torchft_lighthouse")
        bind = f"--bind=127.0.0.1:{self._port}"
        scene.start(self._folder, "lighthouse", [program, "--min_replicas=1", bind, *flags])
        self._replicas = [self._start_replica(index, attempt=0) for index in range(self._workers)]
        if not scene.wait_until(lambda: self._ready() == self._workers, PATIENCE_S):
            raise RuntimeError(
                f"{self._ready()} of {self._workers} replicas started: {scene.tail(self._folder)}"
            )
        (self._folder / "go").touch()

    def break_one(self, name: str, victim: int, moment_s: float) -> Pause:
        """Kill a replica, wait for the others, start it again, and wait for the end."""
        scene.wait_until_warm(self._folder, self._workers)
        time.sleep(moment_s)
        kill_s = scene.kill(self._replicas[victim].pid)
        went_on = scene.wait_until(lambda: self._went_on(victim, kill_s), PATIENCE_S)
        restart_s = time.monotonic()
        if went_on:
            self._replicas.append(self._start_replica(victim, attempt=1))
        finished = went_on and scene.wait_until(self.is_finished, PATIENCE_S)
        notes = read_notes(self._folder)
        others = [note for note in notes if not note.worker.endswith(f".{victim}")]
        pause = judge(name, others, kill_s, finished=finished, remark=self._remark(others, kill_s))
        return dataclasses.replace(pause, rejoin_s=self._rejoin_s(notes, victim, restart_s))

    def is_finished(self) -> bool:
        """Return whether anybody has committed the last step."""
        return any(note.step >= self._steps and note.is_kept for note in read_notes(self._folder))

    def is_alarm(self, note: Note) -> bool:
        """Return whether a step without a fault was discarded or made by fewer than all."""
        return not note.is_kept or note.group != self._workers

    def _start_replica(self, index: int, *, attempt: int) -> subprocess.Popen[bytes]:
        flags = {
            "folder": self._folder,
            "replica": index,
            "attempt": attempt,
            "workers": self._workers,
            "steps": self._steps,
            "seed": self._seed,
            "lighthouse": f"http://127.0.0.1:{self._port}",
            "times": json.dumps(self._times.manager_s),
        }
        command = [sys.executable, str(scene.HERE / "torchft_worker.py")]
        command += [f"--{name}={value}" for name, value in flags.items()]
        return scene.start(self._folder, f"{attempt}.{index}", command)

    def _ready(self) -> int:
        return len(list(self._folder.glob("ready.0.*")))

    def _went_on(self, victim: int, kill_s: float) -> bool:
        return any(
            note.is_kept
            and note.end_s > kill_s
            and note.group < self._workers
            and not note.worker.endswith(f".{victim}")
            for note in read_notes(self._folder)
        )

    def _rejoin_s(self, notes: list[Note], victim: int, restart_s: float) -> float | None:
        successor = f"notes.1.{victim}"
        ends_s = [
            note.end_s
            for note in notes
            if note.worker == successor and note.is_kept and note.group == self._workers
        ]
        return ends_s[0] - restart_s if ends_s else None

    def _remark(self, others: list[Note], kill_s: float) -> str:
        smallest = min((note.group for note in others if note.end_s > kill_s), default=0)
        alarms = sum(self.is_alarm(note) for note in others if note.end_s <= kill_s)
        times = self._times.lighthouse_ms | self._times.manager_s
        said = ", ".join(f"{name} {value}" for name, value in times.items()) or "times as shipped"
        return f"{self._workers} replicas of 1 rank, {alarms} false alarms, went on with {smallest}; {said}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    if problem := unavailable():
        sys.exit(problem)
    scene.run_main(__doc__, measure)
