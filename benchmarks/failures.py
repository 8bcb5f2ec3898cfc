"""Training under failures: what each strategy makes of it, by failure frequency and by scale.

Four tables. *Frequency*: one of 32 workers lost every 6 h, 2 h, 30 min, 10 min until half are gone, and two
real spot traces (from HOLDFAST_DATA, left out where that is missing): wall-clock throughput with every pause,
as a share of 1F1B without faults, averaged over seeds. *Bamboo*: the same on the two models that it fits.
*Scale*: 256 to 1,536 workers with 1, 5 and 10 % dead, a snapshot without pauses. *Check*: our models of the
other systems on the traces of Oobleck's artifact, beside what its own simulator says. ``holdfast simulate
--explain`` says what is modelled. ``--quick`` runs a small sample.
"""

from __future__ import annotations

import json
import os
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.progress import Progress

import common
from holdfast.plan.planner import EFFORT
from holdfast.simulate.fitting import Fitted, fit
from holdfast.simulate.models import BERT_LARGE, GPT2, GPT3_2_7B, GPT3_6_7B, GPT3_MEDIUM, Model, Profile
from holdfast.simulate.periods import Periods
from holdfast.simulate.run import Outcome, run
from holdfast.simulate.strategies import make_strategy, why_not
from holdfast.simulate.strategies.base import Situation
from holdfast.simulate.traces import make_fixed, parse_trace

FREQUENCIES = {"6 h": 21_600.0, "2 h": 7200.0, "30 min": 1800.0, "10 min": 600.0}
SPOT = {"AWS P3": "p3-trace.csv", "GCP A100": "gcp-a100-east1b.txt"}
NAMES = {
    "holdfast": "holdfast",
    "recycle": "recycle",
    "oobleck": "oobleck",
    "oobleck-measured": "oobleck*",
    "bamboo": "bamboo",
    "varuna": "varuna",
    "drop-pipeline": "drop",
    "checkpoint-restart": "restart",
    "fault-scaled": "scaled",
}
"""Strategies, and what they are called at the head of a column."""
PAPER = "ReCycle's paper: up to 1.46x Oobleck and 1.64x Bamboo; its micro-batches are not published"
DEAD = (0.01, 0.05, 0.10)
WORKERS = {256: (16, 16), 512: (16, 32), 1024: (16, 64), 1536: (16, 96)}
"""Workers; pp and dp, at 64 micro-batches."""
MEGATRON = {256: (1, 32, 32), 512: (2, 32, 48), 1024: (4, 32, 56), 1536: (8, 24, 96)}
"""GPUs of Megatron-LM's ladder (SC'21); pp, dp and micro-batches of one sequence, at TP 8."""
ARTIFACT: dict[str, dict[str, tuple[float, float, float]]] = {
    "gpt3-medium": {"oobleck": (29.3, 29.2, 28.7), "varuna": (29.5, 28.5, 20.2)},
    "gpt3-2.7b": {"oobleck": (7.29, 7.23, 6.89), "varuna": (7.27, 6.54, 1.76)},
    "gpt3-6.7b": {"oobleck": (4.33, 4.22, 3.55), "varuna": (4.14, 2.69, 0.26)},
    "bert-large": {"oobleck": (287, 286, 282), "varuna": (260, 246, 174), "bamboo": (77, 76, 70)},
    "gpt2": {"oobleck": (85.6, 85.4, 84.8), "varuna": (86.5, 85.2, 76.4), "bamboo": (17.5, 17.1, 16.0)},
}
"""Samples/s with a node lost every 6 h, 1 h and 10 min, by a run of the simulator in Oobleck's artifact."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table with what is to be said about it."""

    title: str
    rows: list[dict[str, Any]]
    notes: list[str]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a frequency table, before it is simulated."""

    model: Model
    microbatches: int
    memory: int | None
    trace: str


class Bench:
    """Runs the strategies; plans are shared by all jobs of one shape."""

    def __init__(self, *, seeds: int, is_quick: bool, bar: Progress) -> None:
        self.seeds = range(1 if is_quick else seeds)
        self.is_quick = is_quick
        self.bar = bar
        self._periods: dict[tuple[int, int, int, int | None], Periods] = {}

    def periods(self, model: Model, microbatches: int, memory: int | None) -> Periods:
        """Return the plans of a shape, made before or empty."""
        key = (model.dp, model.pp, microbatches, memory)
        if key not in self._periods:
            self._periods[key] = Periods(dp=model.dp, pp=model.pp, microbatches=microbatches, memory=memory)
        return self._periods[key]

    def outcomes(self, case: Case) -> dict[str, list[Outcome]]:
        """Return each strategy's outcomes, one per seed."""
        periods = self.periods(case.model, case.microbatches, case.memory)
        traces = [load_trace(case.trace, case.model.workers, seed) for seed in self.seeds]
        return {
            name: [run(one, make_strategy(name, case.model, periods, one.mtbf_s)) for one in traces]
            for name in NAMES
            if why_not(name, case.model) is None
        }


def main() -> None:
    """Print the tables."""
    parser = common.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="runs to average over")
    parser.add_argument("--quick", action="store_true", help="a small sample: one seed, few rows")
    options = parser.parse_args()
    with common.progress() as bar:
        bench = Bench(seeds=options.seeds, is_quick=options.quick, bar=bar)
        tables = [
            frequency_table(bench, "oobleck", (GPT3_MEDIUM, GPT3_2_7B, GPT3_6_7B)),
            frequency_table(bench, "bamboo", (BERT_LARGE, GPT2)),
            scale_table(bench),
            check_table(),
        ]
    if options.json:
        found = [msgspec.to_builtins(table) for table in tables]
        print(json.dumps({"tables": found, "hardware": common.hardware()}))
        return
    for table in tables:
        common.show(table.title, table.rows, [*table.notes, ""], as_json=False)


def frequency_table(bench: Bench, rival: str, models: Sequence[Model]) -> Table:
    """Return throughput by failure frequency, and how Holdfast does against one rival."""
    cases = [case for model in models for case in cases_of(bench, model)]
    tracked = bench.bar.track(cases, description=f"frequency, against {rival}")
    rows = [frequency_row(bench, case, rival) for case in tracked]
    best = max(rows, key=lambda row: row[f"x {rival}"])
    least = min(rows, key=lambda row: row[f"x {rival}"])
    notes = [
        "shares of 1F1B without faults; oobleck*: pauses as measured by others (6.7B); scaled: live / all",
        f"x: Holdfast against {rival}; healthy: the same while nobody is dead; x recycle: against ReCycle",
        "line: at or above fault-scaled, or what keeps Holdfast below it: M is more micro-batches than",
        f"(pp-1)(dp-1) = {room_words(models)}, up to which one death per stage fits into the bubbles",
        f"Holdfast is {least[f'x {rival}']:.2f} to {best[f'x {rival}']:.2f} x {rival} here. {PAPER}",
        *against_measured(rows),
        *([] if spot_folder() else ["the spot traces are left out: HOLDFAST_DATA is not set"]),
    ]
    return Table(title=f"failure frequency, 32 workers, against {rival}", rows=rows, notes=notes)


def against_measured(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the ratios to Oobleck with the pauses that others measured, where there are any."""
    found = [row["holdfast"] / row["oobleck*"] for row in rows if isinstance(row.get("oobleck*"), float)]
    return [f"and {min(found):.2f} to {max(found):.2f} x oobleck*"] if found else []


def cases_of(bench: Bench, model: Model) -> list[Case]:
    """Return the rows of a model: two numbers of micro-batches, with 1F1B's memory and without a cap."""
    labels = [*FREQUENCIES, *(SPOT if spot_folder() else ())]
    choices: list[int] = list(model.microbatch_choices)
    memories: list[int | None] = [model.pp, None]
    if bench.is_quick:
        labels, choices, memories = ["2 h", "10 min"], choices[:1], [None]
    return [
        Case(model=model, microbatches=microbatches, memory=memory, trace=label)
        for microbatches in choices
        for memory in memories
        for label in labels
    ]


def frequency_row(bench: Bench, case: Case, rival: str) -> dict[str, Any]:
    """Return a row: who has which share of fault-free, and the ratios that others publish."""
    model, outcomes = case.model, bench.outcomes(case)
    periods = bench.periods(model, case.microbatches, case.memory)
    shares = {
        name: statistics.mean(one.throughput for one in found) / model.throughput
        for name, found in outcomes.items()
    }
    columns = [name for name in NAMES if name != "bamboo" or rival == "bamboo"]
    return {
        "model": model.title,
        "pp_dp": f"{model.pp} x {model.dp}",
        "M": case.microbatches,
        "memory": case.memory or "none",
        "lost_every": case.trace,
        **{NAMES[name]: shares.get(name, "-") for name in columns if name in shares or rival == "oobleck"},
        f"x {rival}": shares["holdfast"] / shares[rival],
        "healthy": healthy("holdfast", case, periods) / healthy(rival, case, periods),
        "x recycle": shares["holdfast"] / shares["recycle"],
        "line": explain_line(case, shares, outcomes["holdfast"]),
    }


def healthy(name: str, case: Case, periods: Periods) -> float:
    """Return samples/s of a strategy while everybody is alive."""
    return make_strategy(name, case.model, periods, None).begin(tuple(range(case.model.workers))).throughput


def explain_line(case: Case, shares: dict[str, float], outcomes: Sequence[Outcome]) -> str:
    """Say whether Holdfast is at the fault-scaled line, and if not, what keeps it below."""
    if shares["holdfast"] >= shares["fault-scaled"]:
        return "above"
    pace = statistics.mean(one.samples / one.spent.computing_s for one in outcomes) / case.model.throughput
    if pace >= shares["fault-scaled"]:
        return "pauses, redone"
    return why_below(case.model, case.microbatches, case.memory)


def why_below(model: Model, microbatches: int, memory: int | None) -> str:
    """Say what keeps a plan below the share of live workers."""
    if microbatches > room(model):
        return "M"
    return "memory" if memory else "whole numbers"


def room(model: Model) -> int:
    """How many micro-batches let one death per stage fit into the bubbles."""
    return (model.pp - 1) * (model.dp - 1)


def room_words(models: Sequence[Model]) -> str:
    """Return that number for some models."""
    return ", ".join(str(number) for number in dict.fromkeys(room(model) for model in models))


def spot_folder() -> Path | None:
    """Return where the spot traces are, if they are."""
    folder = Path(os.environ.get("HOLDFAST_DATA") or "/nonexistent") / "spot"
    return folder if folder.is_dir() else None


def load_trace(label: str, workers: int, seed: int) -> Fitted:
    """Return a trace by its label, with the draws of a seed."""
    rng = random.Random(seed)
    if label in FREQUENCIES:
        return fit(make_fixed(nodes=workers, every_s=FREQUENCIES[label], rng=rng), workers, rng)
    folder = spot_folder()
    assert folder is not None
    return fit(parse_trace((folder / SPOT[label]).read_text(), rng), workers, rng)


def scale_table(bench: Bench) -> Table:
    """Return throughput with a share of the workers dead, at the sizes that the paper simulated."""
    ladder = [(f"{count} workers", pp, dp, 64) for count, (pp, dp) in WORKERS.items()]
    ladder += [(f"{count} GPUs, TP 8", *shape) for count, shape in MEGATRON.items()]
    if bench.is_quick:
        ladder = ladder[:1] + ladder[4:6]
    cases = [(step, memory, share) for step in ladder for memory in (step[1], None) for share in DEAD]
    tracked = bench.bar.track(cases, description="scale")
    rows = [scale_row(step, memory, share) for step, memory, share in tracked]
    notes = [
        "a snapshot once all pauses are over, dead workers drawn (seed 0), as a share of fault-free 1F1B",
        "TP 8: Megatron-LM's layouts and batches (SC'21); a TP group of 8 GPUs is one worker and dies as one",
        "by rule, not measured at this size: oobleck and varuna run as with the same share of nodes on 6.7B;",
        "bamboo, which does not fit into memory there, as with the same share on BERT-large",
    ]
    return Table(title="scale: 1, 5 and 10 % of the workers dead", rows=rows, notes=notes)


def scale_row(step: tuple[str, int, int, int], memory: int | None, share: float) -> dict[str, Any]:
    """Return a row of the scale table."""
    label, pp, dp, microbatches = step
    model = scaled_model(pp, dp)
    periods = Periods(dp=dp, pp=pp, microbatches=microbatches, memory=memory, effort=EFFORT)
    dead = max(1, round(share * model.workers))
    gone = tuple(sorted(random.Random(0).sample(range(model.workers), dead)))
    live = tuple(worker for worker in range(model.workers) if worker not in gone)
    found = {}
    for name in NAMES:
        if why_not(name, model) is None:
            strategy = make_strategy(name, model, periods, None)
            begun = strategy.begin(tuple(range(model.workers)))
            changed = strategy.change(Situation(at_s=86_400.0, live=live, left=gone)) or begun
            found[name] = changed.throughput / model.throughput
    is_above = found["holdfast"] >= found["fault-scaled"]
    return {
        "size": label,
        "pp_dp": f"{pp} x {dp}",
        "M": microbatches,
        "memory": memory or "none",
        "dead": f"{dead} ({share:.0%})",
        **{NAMES[name]: value for name, value in found.items()},
        "x oobleck": found["holdfast"] / found["oobleck"],
        "line": "above" if is_above else why_below(model, microbatches, memory),
    }


def scaled_model(pp: int, dp: int) -> Model:
    """Return the 6.7B model as if on so many workers: all profiles by the share of nodes, in proportion."""
    factor = pp * dp // 32
    bamboo = BERT_LARGE.bamboo
    assert bamboo is not None

    def stretch(profile: Profile, times: float) -> Profile:
        return Profile(tuple((n * factor, y * times) for n, y in profile.points), profile.fewest * factor)

    return msgspec.structs.replace(
        GPT3_6_7B,
        pp=pp,
        dp=dp,
        oobleck=stretch(GPT3_6_7B.oobleck, factor),
        varuna=stretch(GPT3_6_7B.varuna, factor),
        bamboo=stretch(bamboo, factor * GPT3_6_7B.throughput / BERT_LARGE.throughput),
    )


def check_table() -> Table:
    """Return what our models of the other systems make of the artifact's traces, beside the artifact."""
    rows = []
    for model in (GPT3_MEDIUM, GPT3_2_7B, GPT3_6_7B, BERT_LARGE, GPT2):
        periods = Periods(dp=model.dp, pp=model.pp, microbatches=1)
        for index, (label, every_s) in enumerate((("6 h", 21_600.0), ("1 h", 3600.0), ("10 min", 600.0))):
            rng = random.Random(0)
            trace = fit(make_fixed(nodes=30, every_s=every_s, rng=rng), 30, rng)
            row: dict[str, Any] = {"model": model.title, "lost_every": label}
            for name in ("oobleck", "varuna", "bamboo"):
                theirs = ARTIFACT[model.name].get(name)
                if theirs is None:
                    row |= {name: "-", f"{name}_artifact": "-"}
                    continue
                ours = run(trace, make_strategy(name, model, periods, None)).throughput
                row |= {name: ours, f"{name}_artifact": float(theirs[index])}
            rows.append(row)
    notes = [
        "samples/s, 30 nodes down to 15; the artifact's Bamboo slows down after take-overs, ours does not;",
        "Varuna under frequent failures depends on where between two checkpoints a failure falls",
    ]
    return Table(title="check: the other systems on the traces of Oobleck's artifact", rows=rows, notes=notes)


if __name__ == "__main__":
    main()
