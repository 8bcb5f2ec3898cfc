"""What it costs that two workers exchange their places, and whether the bits are the same."""

from __future__ import annotations

import random
from typing import Any

from returning.entries import SHAPES, job_of
from returning.runs import launched


def measure(shape: str, seed: int, calm: dict[int, str], op_ms: float) -> dict[str, Any]:
    """Let two workers of different stages change places, and back some steps later; say what came of it."""
    dp, pp, _ = SHAPES[shape]
    chance = random.Random(seed)
    stages = chance.sample(range(pp), 2)
    first, second = (f"{chance.randrange(dp)}.{stage}" for stage in stages)
    step = chance.randrange(10, 30)
    swaps = ["--swap", f"{step}:{first}:{second}", f"{step + 40}:{first}:{second}"]
    with launched(dp * pp, [], [*job_of(shape, op_ms), *swaps]) as run:
        run.process.wait(600)
        pauses = [pause for each in run.numbers("meetings").values() for pause in each]
        return {
            "shape": shape,
            "seed": seed,
            "swap": f"{first} {second}",
            "longest pause, s": round(max(pauses), 3) if pauses else None,
            "same bits": run.process.returncode == 0 and len(pauses) == 2 * dp * pp and run.digests() == calm,
        }
