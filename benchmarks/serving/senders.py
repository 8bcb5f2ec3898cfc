"""Jobs that write their event logs and send them: run directories as guards leave them, without training.

    python -m serving.senders FOLDER --jobs 50 --first 0 --rate 500 --seconds 300 --server http://127.0.0.1:8417

The token is in ``HOLDFAST_TOKEN``. It ends when all that was written has been acknowledged.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from holdfast.findings import ChangePoint
from holdfast.guard.eventlog import EventLog, append_line
from holdfast.guard.posting import Poster, parse_server, token_reader
from holdfast.guard.say import Say
from holdfast.guard.sending import make_sender
from holdfast.values import AnyEvent, AttemptStarted, JobRelieved, JobSlowed, RunStarted, StepSeen

RANKS = 8
THREADS = 8
HALF_INCIDENT = 100
"""Events from the beginning of an incident to its end, and as many to the next one."""
PATIENCE_S = 600.0


class Job:
    """One run directory, and its part of the traffic."""

    def __init__(self, folder: Path, number: int, server: str, *, is_calm: bool = False) -> None:
        self.run_dir = folder / f"job-{number:03d}"
        self.run_dir.mkdir()
        say = Say(put=lambda fd, data: None)
        self._log = EventLog(self.run_dir, node=0, host=f"host{number}", say=say)
        self._step = 0
        self._is_calm = is_calm
        self.next_s = time.monotonic() + random.random()
        poster = Poster(parse_server(server), token_reader(os.environ, None))
        self.sender = make_sender(self.run_dir, poster, node=0, key=self.run_dir.name, say=say)
        self._log.append(RunStarted(run_id="load", argv=["train.py"], pid=os.getpid()))
        ranks = list(range(RANKS))
        self._log.append(AttemptStarted(world_size=RANKS, nodes=1, ranks=ranks, pids=ranks))

    def write(self) -> None:
        """Write one more event."""
        self._step += 1
        self._log.append(_event(self._step, is_calm=self._is_calm))

    def write_summary(self) -> None:
        """Write the row of a second."""
        row = {
            "at": datetime.now(UTC).isoformat(),
            "node": 0,
            "attempt": 0,
            "steps": {str(rank): self._step for rank in range(RANKS)},
            "duration_s": {str(rank): 0.1 + 0.001 * rank for rank in range(RANKS)},
            "lost": 0,
        }
        append_line(self.run_dir / "summaries.jsonl", json.dumps(row).encode() + b"\n")


def _event(step: int, *, is_calm: bool) -> AnyEvent:
    """Return events as jobs have them that are slow, and well, and slow again, every 20 s at 10 a second."""
    if step % HALF_INCIDENT or is_calm:
        return StepSeen(rank=step % RANKS, step=step)
    is_slow = step % (2 * HALF_INCIDENT) == HALF_INCIDENT
    change = ChangePoint(
        step=step,
        detected_step=step + 2,
        before_s=0.1,
        after_s=0.2,
        direction="slow" if is_slow else "relief",
        is_slow=is_slow,
        confidence=0.99,
    )
    return JobSlowed(change=change) if is_slow else JobRelieved(change=change)


def write_all(jobs: list[Job], rate: float, seconds: float) -> None:
    """Write so many events a second in all, each job in turn, and a row for each job and second."""
    began_s, written, rows = time.monotonic(), 0, 0
    while (passed_s := time.monotonic() - began_s) < seconds:
        while written < passed_s * rate:
            jobs[written % len(jobs)].write()
            written += 1
        while rows < passed_s * len(jobs):
            jobs[rows % len(jobs)].write_summary()
            rows += 1
        time.sleep(0.01)


def send(jobs: list[Job], is_written: threading.Event, until_s: float) -> None:
    """Give each job its turn when it wants it, until nothing is left."""
    left = list(jobs)
    while left and time.monotonic() < until_s:
        was_written = is_written.is_set()  # Before the turn: what is written later is not in it.
        now_s = time.monotonic()
        for job in [each for each in left if each.next_s <= now_s]:
            job.next_s = time.monotonic() + job.sender.turn(time.monotonic())
            if was_written and job.sender.is_done:
                left.remove(job)
        time.sleep(0.01)


def main() -> None:
    """Write and send."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--calm", action="store_true", help="nothing goes wrong in any job")
    options = parser.parse_args()
    jobs = [
        Job(options.folder, options.first + each, options.server, is_calm=options.calm)
        for each in range(options.jobs)
    ]
    is_written = threading.Event()
    until_s = time.monotonic() + options.seconds + PATIENCE_S
    threads = [
        threading.Thread(target=send, args=[jobs[number::THREADS], is_written, until_s])
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    write_all(jobs, options.rate, options.seconds)
    is_written.set()
    written_s = time.monotonic()
    for thread in threads:
        thread.join()
    print(json.dumps({"drained_s": time.monotonic() - written_s}))
    sys.exit(not all(job.sender.is_done for job in jobs))


if __name__ == "__main__":
    main()
