"""What it takes a dead worker to come back, what the others lose by it, and whether the bits are the same.

A worker is killed at a random moment, started again, fed by a peer while the others train, and enters between
two steps.
"""

from __future__ import annotations

import random
import re
import statistics
from itertools import pairwise
from typing import Any

from holdfast.values import Regrouped
from returning.runs import Launched, launched
from rivals import torchft_job

SHAPES = {"2x2": (2, 2, 4), "3x4": (3, 4, 6)}
STEPS = 160
TORCHFT_STEPS = 1500
"""Long enough for a replica to come back before the others are done."""


def digests_of(shape: str, op_ms: float) -> dict[int, str]:
    """Return the parameters at the end of a run in which nobody dies."""
    dp, pp, _ = SHAPES[shape]
    with launched(dp * pp, [], job_of(shape, op_ms)) as run:
        run.process.wait(600)
        return run.digests()


def measure(shape: str, seed: int, calm: dict[int, str], op_ms: float) -> dict[str, Any]:
    """Kill a worker of one run, and say what came of it."""
    dp, pp, _ = SHAPES[shape]
    chance = random.Random(seed)
    rank = chance.randrange(dp * pp)
    step = chance.randrange(10, 30)
    with launched(
        dp * pp, ["--rejoin"], [*job_of(shape, op_ms), "--teller", str((rank + 1) % (dp * pp))]
    ) as run:
        run.wait(lambda: f"step {step} loss" in run.said)
        killed_s = run.kill(rank)
        run.process.wait(600)
        return {"shape": shape, "seed": seed, "killed": rank} | _tell(run, rank, killed_s, calm)


def _tell(run: Launched, rank: int, killed_s: float, calm: dict[int, str]) -> dict[str, Any]:
    entered = [e for e in run.events() if isinstance(e, Regrouped) and rank in e.newcomers]
    mine = run.numbers("ends").get(rank, [])
    took = re.search(rf"rank {rank} took over ([\d.]+) MB and (\d+) updates in ([\d.]+) s", run.said)
    return {
        "back after, s": round(mine[0] - killed_s, 2) if entered and mine else None,
        "at step": entered[0].version if entered else None,
        "MB": float(took[1]) if took else None,
        "updates replayed": int(took[2]) if took else None,
        "fed for, s": float(took[3]) if took else None,
        "others lost, steps": _lost(run, rank, killed_s, mine[0]) if entered and mine else None,
        "same bits": run.process.returncode == 0 and bool(entered) and run.digests() == calm,
    }


def _lost(run: Launched, rank: int, killed_s: float, entered_s: float) -> float:
    """Return what the entry cost one of the others: steps that took longer than is usual on either side."""
    ends = next(ends for other, ends in sorted(run.numbers("ends").items()) if other != rank)
    spans = [(after, after - before) for before, after in pairwise(ends)]
    usual_s = statistics.median(span for at, span in spans if at > entered_s)
    # The first step after the kill was cut short by it, which is not what the entry costs.
    alone = [(at, span) for at, span in spans if killed_s < at <= entered_s][1:]
    alone_s = statistics.median(span for _, span in alone[:-1]) if len(alone) > 1 else usual_s
    near = [span - alone_s for at, span in alone if entered_s - at < 4 * usual_s]
    near += [span - usual_s for at, span in spans if 0 < at - entered_s < 4 * usual_s]
    return round(max(0.0, sum(near)) / usual_s, 2)


def summary(rows: list[dict[str, Any]]) -> str:
    """Say what all of them came to."""
    lost = [row["others lost, steps"] for row in rows if row["others lost, steps"] is not None]
    back = [row["back after, s"] for row in rows if row["back after, s"] is not None]
    fed = [row["fed for, s"] for row in rows if row["fed for, s"] is not None]
    back_s, fed_s, steps = (statistics.median(each or [0]) for each in (back, fed, lost))
    return (
        f"back after {back_s:.1f} s in the median, {fed_s:.1f} s of them from asking for a donor until it "
        f"works; the others lost {steps:.1f} steps, at most {max(lost or [0]):.1f}"
    )


def beside(count: int, seed: int) -> list[str]:
    """Say what torchft takes on this machine, now: from the start of a replica until it takes part."""
    if reason := torchft_job.unavailable():
        return [reason]
    lines = []
    for tuned in (False, True):
        found = [
            torchft_job.measure(
                workers=2, steps=TORCHFT_STEPS, kill_at_s=None, seed=seed + number, tuned=tuned
            ).rejoin_s
            for number in range(count)
        ]
        back = ", ".join("never" if each is None else f"{each:.1f} s" for each in found)
        how = "tuned" if tuned else "as shipped"
        lines.append(f"torchft {how}, 2 replicas of one rank: takes part {back} after its start")
    return lines


def job_of(shape: str, op_ms: float) -> list[str]:
    """Return the flags of the job."""
    _, pp, microbatches = SHAPES[shape]
    words = ["--pp", str(pp), "--microbatches", str(microbatches), "--steps", str(STEPS)]
    return [*words, "--op-ms", str(op_ms), "--width", "32"]
