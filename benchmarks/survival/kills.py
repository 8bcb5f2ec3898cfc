"""Random deaths of one or two workers: do the survivors end with the parameters of a run without faults?

Half of them come from outside at a uniformly random moment of the run, never announced to the victim; half at
a seeded point of the schedule, also while the others recover. ``--seed`` and ``--count`` replay them.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path

import common
from crew import Finished, Kill, Shape, run, victims
from holdfast.lab.fork import Lab
from holdfast.lab.mortal import Death

STEPS = 20
SHAPES = (
    Shape(dp=3, pp=4, microbatches=6),
    Shape(dp=2, pp=2, microbatches=4),
    Shape(dp=4, pp=1, microbatches=4),
)
LIMITS = {"clipped": "0.35", "calm": "100"}
"""Gradient norm: one that many steps exceed, and one that none does, so that updates are applied ahead."""
POINTS = ("forward", "input", "weight", "send", "receive", "reduction", "barrier", "step")


class Case:
    """One run with deaths, drawn from a seed."""

    def __init__(self, seed: int, *, is_outside: bool) -> None:
        rng = random.Random(seed)
        self.seed = seed
        self.is_outside = is_outside
        self.shape = rng.choices(SHAPES, weights=(2, 2, 1))[0]
        self.limit = rng.choice(sorted(LIMITS))
        self.ranks = victims(rng, self.shape)
        self.moments = [rng.random() for _ in self.ranks]
        self.deaths = [self._death(rng, number) for number in range(len(self.ranks))]

    def _death(self, rng: random.Random, number: int) -> Death:
        if number == 1 and rng.random() < 0.5:
            return Death(self.ranks[1], "regroup", 0, 2)  # The first time is when the job begins.
        points = [point for point in POINTS if self.shape.pp > 1 or point not in ("send", "receive")]
        return Death(self.ranks[number], rng.choice(points), rng.randrange(STEPS), 1)

    @property
    def arguments(self) -> list[str]:
        """The command line of the job."""
        die = [] if self.is_outside else ["--die", *map(str, self.deaths)]
        return [*base_arguments(self.limit), *die]

    def kills(self, span_s: float) -> list[Kill]:
        """What is done from outside, within the time that a run without faults takes."""
        if not self.is_outside:
            return []
        pairs = zip(self.ranks, self.moments, strict=True)
        return [Kill(rank=rank, after_s=moment * span_s) for rank, moment in pairs]


def base_arguments(limit: str) -> list[str]:
    """The job without deaths: AdamW, dropout, clipping, a learning-rate schedule."""
    return ["--steps", str(STEPS), "--max-norm", LIMITS[limit]]


def span_s(finished: Finished) -> float:
    """How long the steps of a run took, from the end of the first to the end of the last."""
    ends = finished.ends_s[0]
    return ends[-1] - ends[0]


def lost_s(finished: Finished) -> list[float]:
    """The wall time that each outside kill cost: how much longer than usual the step that it hit took.

    A worker may be a step ahead of the one that died, so the step after that is looked at too.
    """
    found = []
    for killed_s in finished.killed_s.values():
        costs = []
        for ends in finished.ends_s.values():
            gaps = [after - before for before, after in pairwise(ends)]
            hit = [gap for gap, after in zip(gaps, ends[1:], strict=True) if after > killed_s][:2]
            costs += [max(hit) - statistics.median(gaps)] if hit else []
        if costs:
            found.append(statistics.median(costs))
    return found


def measure(count: int, seed: int) -> common.Part:
    """Run the cases and return a row per shape and kind of death."""
    tally: dict[tuple[str, str], list[bool]] = {}
    bad: list[str] = []
    lost: list[float] = []
    with Lab() as lab, common.progress() as bar:
        task = bar.add_task("runs with deaths", total=count)
        references: dict[tuple[str, str], Finished] = {}
        for number in range(count):
            case = Case(seed + number, is_outside=number % 2 == 0)
            key = (str(case.shape), case.limit)
            if key not in references:
                references[key] = run(lab, case.shape, base_arguments(case.limit))
            reference = references[key]
            finished = run(lab, case.shape, case.arguments, kills=case.kills(span_s(reference)))
            is_same = same(finished, reference)
            kind = "outside, random moment" if case.is_outside else "seeded point"
            tally.setdefault((str(case.shape), kind), []).append(is_same)
            lost += lost_s(finished)
            if not is_same:
                bad.append(f"seed {case.seed}: {explain(finished, case)}")
            bar.advance(task)
    rows = [
        {"shape": shape, "death": kind, "runs": len(results), "bit_identical": sum(results)}
        for (shape, kind), results in sorted(tally.items())
    ]
    total = [result for results in tally.values() for result in results]
    notes = [f"{sum(total)} of {len(total)} runs end with the parameters of the run without faults", *bad]
    if lost:
        notes.append(
            f"wall time lost per outside kill: median {statistics.median(lost):.2f} s, "
            f"worst {max(lost):.2f} s, {len(lost)} kills"
        )
    return common.Part(rows, notes, is_good=all(total))


def same(finished: Finished, reference: Finished) -> bool:
    """Say whether a run ended as it should: survivors succeeded, with the parameters of the reference."""
    try:
        return (
            not finished.stops and finished.stage_digests == reference.stage_digests and is_orderly(finished)
        )
    except ValueError:
        return False


def is_orderly(finished: Finished) -> bool:
    """Say whether all that did not finish were killed, and all others did."""
    codes = finished.result.exit_codes
    return all(code in (0, -9) for code in codes) and len(finished.digests) == codes.count(0)


def explain(finished: Finished, case: Case) -> str:
    """Say what went wrong, with what replays it."""
    words = [f"{case.shape} {case.limit}"]
    words.append(f"killed {case.ranks} at {case.moments}" if case.is_outside else " ".join(case.arguments))
    words.append(f"exit codes {finished.result.exit_codes}")
    words += finished.stops
    logs = [f"== rank {rank}\n{log}" for rank, log in enumerate(finished.result.logs)]
    file = Path(tempfile.gettempdir()) / f"holdfast-recovery-{case.seed}.log"
    file.write_text("\n".join(logs))
    return ", ".join([*words, f"logs in {file}"])
