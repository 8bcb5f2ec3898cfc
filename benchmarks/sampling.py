"""What one look of the sampler costs in CPU time, by processes and threads.

The processes sleep. A look is the CPU time of this process, in user and system mode, so that neighbours on
the machine matter little: the median over many looks. ``per process`` is without what the machine's own
counters take, which is the row without processes. Few open files (``ulimit -n``) make it dearer.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import common
from holdfast.guard.sampler import Sampler

_SIZES = ((0, 0), (1, 1), (1, 16), (8, 1), (8, 16), (64, 1), (64, 16))
_SLEEPER = """
import sys, threading
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(flush=True)
sys.stdin.read()
"""


class Cost(NamedTuple):
    """CPU time of one look."""

    median_us: float
    best_us: float


def main() -> None:
    """Measure every size and print a row for each."""
    parser = common.parser(__doc__)
    parser.add_argument("--looks", type=int, default=100)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    machine = Cost(0.0, 0.0)
    with common.progress() as bar:
        for processes, threads in bar.track(_SIZES, description="sizes"):
            with sleepers(processes, threads) as pids:
                look = cost(pids, options.looks)
            machine = machine if processes else look
            rows.append(
                {
                    "processes": processes,
                    "threads each": threads,
                    "look_us": look.median_us,
                    "per process_us": (look.median_us - machine.median_us) / max(1, processes),
                    "at best_us": (look.best_us - machine.best_us) / max(1, processes),
                    "percent of a core, at one look a second": look.median_us / 1e4,
                }
            )
    notes = [f"CPU time, median of {options.looks} looks; at best: the same of the cheapest look"]
    common.show("one look of the sampler", rows, notes, as_json=options.json)


@contextlib.contextmanager
def sleepers(processes: int, threads: int) -> Iterator[dict[int, int]]:
    """Start processes that sleep in so many threads; their pids by rank."""
    command = [sys.executable, "-S", "-c", _SLEEPER, str(threads)]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(processes):
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        yield {rank: process.pid for rank, process in enumerate(started)}
    finally:
        for process in started:
            process.kill()
            process.communicate()


def cost(pids: dict[int, int], looks: int) -> Cost:
    """Return the CPU time of a look; the first, which opens the files, is not counted."""
    sampler = Sampler(lambda: pids)
    assert len(sampler.sample().processes) == len(pids)
    costs = []
    for _ in range(looks):
        started_ns = time.process_time_ns()
        sampler.sample()
        costs.append((time.process_time_ns() - started_ns) / 1e3)
    sampler.close()
    return Cost(statistics.median(costs), min(costs))


if __name__ == "__main__":
    main()
