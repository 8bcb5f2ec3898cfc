"""Loss and throughput through ten failures, beside the same job without any."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import common
from crew import Finished, Kill, Shape, run
from holdfast.lab.fork import Lab
from holdfast.serve.chart import Chart, Panel, Series, draw

SHAPE = Shape(dp=4, pp=4, microbatches=4)
STEPS = 120
FAILURES = 10
ARGUMENTS = ["--steps", str(STEPS), "--op-ms", "30", "--width", "16", "--batch", "1", "--length", "8"]


def measure(seed: int, picture: Path | None) -> common.Part:
    """Run the job twice, kill ten of sixteen workers in the second run, and compare."""
    rng = random.Random(seed)
    with Lab() as lab:
        calm = run(lab, SHAPE, ARGUMENTS, timeout_s=240)
        span_s = calm.ends_s[0][-1] - calm.ends_s[0][0]
        ranks = _victims(rng)
        kills = [
            Kill(rank=rank, after_s=span_s * (number + 1) / (FAILURES + 2))
            for number, rank in enumerate(ranks)
        ]
        teller = str(next(rank for rank in range(SHAPE.workers) if rank not in ranks))
        broken = run(lab, SHAPE, [*ARGUMENTS, "--teller", teller], kills=kills, timeout_s=360)
    if picture is not None:
        picture.write_text(draw(_chart(calm, broken)))
    is_same = calm.losses == broken.losses and calm.stage_digests == broken.stage_digests
    rows = [
        {
            "run": name,
            "workers_at_the_end": SHAPE.workers - len(finished.dead),
            "last_loss": repr(finished.losses[-1]),
            "wall_s": round(_wall_s(finished), 1),
        }
        for name, finished in (("without faults", calm), (f"{len(broken.dead)} killed", broken))
    ]
    notes = [f"losses of all {len(calm.losses)} steps and parameters are {'' if is_same else 'NOT '}the same"]
    return common.Part(rows, notes, is_good=is_same and len(broken.dead) == FAILURES)


def _victims(rng: random.Random) -> list[int]:
    """Return ten ranks that leave every stage a worker."""
    while True:
        ranks = rng.sample(range(SHAPE.workers), FAILURES)
        left = {rank % SHAPE.pp for rank in range(SHAPE.workers) if rank not in ranks}
        if len(left) == SHAPE.pp:
            return ranks


def _wall_s(finished: Finished) -> float:
    ends = next(iter(finished.ends_s.values()))
    return ends[-1] - ends[0]


def _chart(calm: Finished, broken: Finished) -> Chart:
    return Chart(
        title=f"Training through {FAILURES} failures",
        subtitle=(
            f"{SHAPE.dp} pipelines of {SHAPE.pp} stages, {SHAPE.microbatches} micro-batches each; at every "
            "dip a worker is killed -9",
            "emulated accelerators on two cores, real messages, exact",
        ),
        x_label="step",
        panels=(
            Panel(
                y_label="loss",
                series=(
                    Series(name="without faults", points=_line(calm.losses), is_reference=True),
                    Series(name=f"{FAILURES} killed: the same", points=_line(broken.losses), is_main=True),
                ),
            ),
            Panel(
                y_label="steps per second",
                height=200,
                series=(
                    Series(name="without faults", points=_speed(calm), is_reference=True),
                    Series(name=f"{FAILURES} killed", points=_speed(broken), is_main=True),
                ),
            ),
        ),
    )


def _line(losses: list[float]) -> tuple[tuple[float, float], ...]:
    return tuple((float(step), loss) for step, loss in enumerate(losses))


def _speed(finished: Finished) -> tuple[tuple[float, float], ...]:
    """Steps per second over a few steps at a time: single ones are noisy."""
    ends = next(iter(finished.ends_s.values()))
    span = 3
    rates = [(number, span / (ends[number] - ends[number - span])) for number in range(span + 2, len(ends))]
    top = statistics.median(rate for _, rate in rates) * 3
    return tuple((float(number), min(rate, top)) for number, rate in rates)
