"""Where a rival's run takes place: a folder in memory, its processes, and waiting for what they note."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import common
from rivals.pause import WARM_STEPS, Note, Pause, read_notes

MEMORY = Path("/dev/shm")
HERE = Path(__file__).parent


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """Give a folder on tmpfs; at the end all processes of the run are killed and the folder is removed."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        try:
            yield Path(folder)
        finally:
            common.end_all(folder)


def start(folder: Path, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a process of the run; what it prints goes to a file of its own."""
    with (folder / f"log.{name}").open("wb") as log:
        return subprocess.Popen(
            command,
            env=os.environ | {common.MARK: str(folder), "OMP_NUM_THREADS": "1"},
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def wait_until(is_true: Callable[[], bool], timeout_s: float) -> bool:
    """Return whether it came true in time."""
    deadline_s = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


def wait_until_warm(folder: Path, workers: int, timeout_s: float = 120.0) -> None:
    """Wait until every worker has made enough steps, the last of them kept and in one group."""
    if not wait_until(lambda: _is_warm(read_notes(folder), workers), timeout_s):
        raise RuntimeError(f"{workers} workers have not settled in {timeout_s:.0f} s: {tail(folder)}")


def moment_s(seed: int, kill_at_s: float | None) -> float:
    """Return the time between the end of the warm-up and the kill, drawn where none is given."""
    return random.Random(f"moment {seed}").uniform(0.0, 2.0) if kill_at_s is None else kill_at_s


def victim(seed: int, workers: int) -> int:
    """Return who is killed."""
    return random.Random(f"victim {seed}").randrange(workers)


def kill(pid: int) -> float:
    """Kill a process with SIGKILL and return when."""
    moment = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    return moment


def tail(folder: Path, lines: int = 5) -> str:
    """Return the last lines of every log of the run."""
    texts = [(path.name, path.read_text(errors="replace")) for path in sorted(folder.glob("log.*"))]
    return "; ".join(f"{name}: {' | '.join(text.splitlines()[-lines:])}" for name, text in texts)


def show(pause: Pause, *, as_json: bool) -> None:
    """Print one result."""
    row = dataclasses.asdict(pause)
    remark = row.pop("remark")
    common.show("kill -9 of one worker", [row], [remark], as_json=as_json)


def clean_up_on_sigterm() -> None:
    """Make SIGTERM an ordinary exit of this process: its default action would leave the run behind."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def run_main(doc: str | None, measure: Callable[..., Pause]) -> None:
    """Read the options that both rivals have, measure once and print it."""
    clean_up_on_sigterm()
    parser = common.parser(doc)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument(
        "--kill-at", type=float, help="seconds after the warm-up; drawn from the seed if absent"
    )
    parser.add_argument("--tuned", action="store_true", help="the shortest times that work, not the defaults")
    options = parser.parse_args()
    pause = measure(
        workers=options.workers,
        steps=options.steps,
        kill_at_s=options.kill_at,
        seed=options.seed,
        tuned=options.tuned,
    )
    show(pause, as_json=options.json)
    sys.exit(0 if pause.finished else 1)


def _is_warm(notes: Sequence[Note], workers: int) -> bool:
    by_worker: dict[str, list[Note]] = {}
    for note in notes:
        by_worker.setdefault(note.worker, []).append(note)
    last = [note for mine in by_worker.values() for note in mine[-WARM_STEPS:]]
    is_steady = all(note.is_kept for note in last) and len({note.group for note in last}) == 1
    return len(by_worker) == workers and is_steady and min(map(len, by_worker.values())) >= 2 * WARM_STEPS
