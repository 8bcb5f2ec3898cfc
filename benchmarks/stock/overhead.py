"""CPU time of a fault-free step of ``holdfast.Pipeline``, as a multiple of that of torch's own schedules.

CPU time (user and system, all threads, summed over the ranks) says what an executor costs, also on a
machine that others use; wall time would say how busy they were.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

import common
from holdfast.job.attach import ATTACHED_ENV
from holdfast.lab.control import LAB_ENV
from holdfast.lab.fork import Job, Lab
from stock.workload import PP, THEIRS, Measured, Settings, Variant

Row = dict[str, Any]
SHAPES = ((1, 8), (2, 4))
"""dp and micro-batches."""
LOSS_TOLERANCE = 1e-4


class Rival(NamedTuple):
    """A schedule of torch's, and whether ours follows the same order synchronously, staggered or both."""

    name: str
    schedule: Literal["1f1b", "zero_bubble"]
    staggered: tuple[bool, ...]


RIVALS = (
    Rival("Schedule1F1B", "1f1b", (False,)),
    Rival("zero-bubble runtime", "zero_bubble", (False, True)),
)


class Outcome(NamedTuple):
    """One job; lists are by turn or by step."""

    cpu_s: dict[str, list[float]]
    """Of all ranks together, per step."""
    losses: dict[str, list[float]]


def overhead_rows(*, pairs: int, steps: int, seed: int) -> list[Row]:
    """Run a job for each shape and schedule, and return a row for each way in which ours ran."""
    cases = [(dp, count, rival) for dp, count in SHAPES for rival in RIVALS]
    rows: list[Row] = []
    with Lab() as lab, common.progress() as bar:
        for dp, count, rival in bar.track(cases, description="overhead"):
            settings = Settings(
                dp=dp,
                microbatches=count,
                schedule=rival.schedule,
                variants=[Variant(is_staggered=s, exact=e) for s in rival.staggered for e in (False, True)],
                blocks=pairs,
                steps=steps,
                seed=seed,
            )
            rows += summarise(settings, rival, run(lab, settings))
    return rows


def run(lab: Lab, settings: Settings) -> Outcome:
    """Let the contenders of one job take their turns."""
    # Neither the lab's recorder nor our step hook, which would hear of both.
    env = {LAB_ENV: "", ATTACHED_ENV: "0"}
    arguments = [msgspec.json.encode(settings).decode()]
    result = lab.run(
        Job(module="stock.duel", ranks=settings.world, args=arguments, env=env), timeout_s=1800.0
    )
    if any(result.exit_codes):
        raise SystemExit(f"{settings} ended with {result.exit_codes}:\n" + "\n".join(result.logs))
    ranks = [_read(log) for log in result.logs]
    return Outcome(
        {name: list(_per_step_s(ranks, name, settings.steps)) for name in ranks[0].cpu_s},
        {name: list(_mean_losses(ranks, name)) for name in ranks[0].losses},
    )


def _read(log: str) -> Measured:
    line = next(line for line in log.splitlines() if line.startswith("measured "))
    return msgspec.json.decode(line.removeprefix("measured "), type=Measured)


def _per_step_s(ranks: Sequence[Measured], name: str, steps: int) -> Iterator[float]:
    for turn in zip(*(rank.cpu_s[name] for rank in ranks), strict=True):
        yield sum(turn) / steps


def _mean_losses(ranks: Sequence[Measured], name: str) -> Iterator[float]:
    known = [rank.losses[name] for rank in ranks if rank.losses[name]]
    for step in zip(*known, strict=True):
        yield statistics.fmean(step)


def summarise(settings: Settings, rival: Rival, outcome: Outcome) -> list[Row]:
    """Return a row for synchronous and one for staggered, as far as they ran."""
    return [
        {
            "job": f"{settings.dp}x{PP}x{settings.microbatches}",
            "torch": rival.name,
            "ours": Variant(is_staggered=is_staggered, exact=False).name,
            "torch_ms": f"{1000 * statistics.median(outcome.cpu_s[THEIRS]):.0f}",
            **_ratios(outcome, is_staggered=is_staggered, exact=False),
            **_ratios(outcome, is_staggered=is_staggered, exact=True),
            "loss_apart": f"{_loss_apart(outcome, is_staggered=is_staggered):.0e}",
        }
        for is_staggered in rival.staggered
    ]


def _ratios(outcome: Outcome, *, is_staggered: bool, exact: bool) -> Row:
    ours = outcome.cpu_s[Variant(is_staggered=is_staggered, exact=exact).name]
    found = sorted(mine / other for mine, other in zip(ours, outcome.cpu_s[THEIRS], strict=True))
    name = "exact" if exact else "plain"
    low, high = found[len(found) // 4], found[-1 - len(found) // 4]
    return {name: f"{statistics.median(found):.3f}", f"{name}_quartiles": f"{low:.3f} to {high:.3f}"}


def _loss_apart(outcome: Outcome, *, is_staggered: bool) -> float:
    """Return how far apart the losses were at most; stop where both did not train the same."""
    worst = max(
        abs(mine - other)
        for exact in (False, True)
        for mine, other in zip(
            outcome.losses[Variant(is_staggered=is_staggered, exact=exact).name],
            outcome.losses[THEIRS],
            strict=True,
        )
    )
    if worst > LOSS_TOLERANCE:
        raise SystemExit(
            f"losses are {worst:.3g} apart, expected at most {LOSS_TOLERANCE}: not the same work"
        )
    return worst
