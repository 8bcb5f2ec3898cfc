"""The wall time that one death costs: this project, torchft at its defaults and tuned, a restart by torchrun.

Lost time is how much longer the step that was hit took than usual; for a restart also the steps since the
last checkpoint. torchft loses a whole replica; it is compared at plain data parallelism, its only shape.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import common
from crew import Kill, Shape, run
from holdfast.lab.fork import Lab
from rivals import torchft_job, torchrun_job
from rivals.pause import Pause
from survival.kills import lost_s

STEPS = 60
WORKERS = 4
JOBS = {
    Shape(dp=4, pp=1, microbatches=4): ["--width", "64", "--length", "32"],
    # Emulated operations, so that twelve workers keep their time on two cores.
    Shape(dp=3, pp=4, microbatches=6): ["--width", "16", "--op-ms", "8"],
}


def measure(count: int, seed: int) -> common.Part:
    """Kill one worker in each of ``count`` runs of every system."""
    rows = []
    with Lab() as lab, common.progress() as bar:
        task = bar.add_task("kills", total=(len(JOBS) + 3) * count)
        for shape in JOBS:
            lost, usual = [], []
            for number in range(count):
                one_lost, one_usual = _ours(lab, shape, random.Random(seed + number))
                lost += one_lost
                usual.append(one_usual)
                bar.advance(task)
            rows.append(_row(f"holdfast {shape}", lost, usual))
        for name, rival in _rivals(seed).items():
            pauses = []
            for number in range(count):
                pauses.append(rival(number))
                bar.advance(task)
            rows.append(_rival_row(name, pauses))
    notes = ["real compute; 3x4x6: emulated accelerators and real messages"]
    return common.Part(rows, notes)


def _ours(lab: Lab, shape: Shape, rng: random.Random) -> tuple[list[float], float]:
    arguments = ["--steps", str(STEPS), "--max-norm", "100", *JOBS[shape]]
    kill = Kill(rank=rng.randrange(shape.workers), after_s=rng.uniform(1.0, 3.0))
    finished = run(lab, shape, arguments, kills=[kill])
    ends = next(iter(finished.ends_s.values()))
    return lost_s(finished), statistics.median(after - before for before, after in pairwise(ends))


def _rivals(seed: int) -> dict[str, Callable[[int], Pause]]:
    def torchft(tuned: bool) -> Callable[[int], Pause]:
        return lambda number: torchft_job.measure(
            workers=WORKERS, steps=100, kill_at_s=None, seed=seed + number, tuned=tuned
        )

    return {
        "torchft, defaults": torchft(False),
        "torchft, tuned": torchft(True),
        "torchrun restart": lambda number: torchrun_job.measure(
            workers=WORKERS, steps=100, kill_at_s=None, seed=seed + number, tuned=False
        ),
    }


def _row(name: str, lost: list[float], usual: list[float]) -> dict[str, Any]:
    return {
        "system": name,
        "kills": len(lost),
        "usual_step_s": round(statistics.median(usual), 3),
        "lost_s_median": round(statistics.median(lost), 2) if lost else "-",
        "lost_s_worst": round(max(lost), 2) if lost else "-",
        "finished": len(usual),
    }


def _rival_row(name: str, pauses: list[Pause]) -> dict[str, Any]:
    lost = [pause.pause_s for pause in pauses if pause.pause_s is not None]
    usual = [pause.usual_step_s for pause in pauses if pause.usual_step_s is not None]
    if not usual:
        return _row(name, [], [0.0]) | {"finished": 0, "usual_step_s": pauses[0].remark}
    return _row(name, lost, usual) | {"finished": sum(pause.finished for pause in pauses)}
