"""CPU time of the lookout over a job of many ranks, per step of the job; prints one JSON object."""

from __future__ import annotations

import gc
import json
import random
import resource
import statistics
import sys
import time

from holdfast.diagnose.lookout import Lookout
from holdfast.telemetry import ChannelUse, Step

RANKS, STEPS, NOISE, SLOW_SINCE = 10_000, 120, 0.02, 100


def main() -> None:
    """Feed it with steps of one second; the last are slow, and it looks back at all ranks."""
    json.dump(cost(RANKS, STEPS, random.Random(0)), sys.stdout)


def cost(ranks: int, steps: int, chance: random.Random) -> dict[str, float]:
    """Return the CPU seconds per step, at the median and at worst, and the memory at the end."""
    lookout, costs = Lookout(), []
    for number in range(steps):
        batch = _batch(number, ranks, chance)
        gc.collect()
        began_s = time.process_time()
        lookout.take(batch)
        costs.append(time.process_time() - began_s)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"median_s": statistics.median(costs), "worst_s": max(costs), "peak_mb": kilobytes / 1024}


def _batch(number: int, ranks: int, chance: random.Random) -> list[Step]:
    """Return a step of every rank, each node's together."""
    lasted_s = (1.0 if number < SLOW_SINCE else 1.5) + chance.gauss(0, NOISE)
    return [
        Step(
            rank=rank,
            step=number,
            ended_s=1000.0 + number,
            duration_s=lasted_s + chance.gauss(0, 0.001),
            wait_s=0.2,
            cpu_s=0.7,
            work=4096,
            calls=8,
            cycle=1,
            channels=tuple(
                ChannelUse(channel=each, wait_s=chance.random(), moved_bytes=10**6 + rank, calls=4)
                for each in (1, 2)
            ),
        )
        for rank in range(ranks)
    ]


if __name__ == "__main__":
    main()
