"""How good plans are, how fast they are made, and what each step from ReCycle to Holdfast is worth.

Seven tables: the oracle tables of the literature and our own search; random problems against lower bounds of
ours and of CP-SAT; few micro-batches against proven optima; planning time and how it grows (``--plot`` draws
it); one slow worker; what each mode adds; what memory is worth. Times are in units of one operation, but for
planning times, which are measured here. ``--quick`` runs a small sample of each.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import common
import oracle
from holdfast.plan.builders import one_f_one_b
from holdfast.plan.planner import Mode, make_plan
from holdfast.plan.problem import Problem, Worker, make_speeds
from holdfast.plan.share import split
from holdfast.plan.timing import time_schedule
from holdfast.plan.validate import validate
from holdfast.serve.chart import Chart, Panel, Series, draw
from instances import hit_problem, random_problem, small_problem
from oracle import Options

Row = dict[str, Any]
RECYCLE_MODES: tuple[Mode, ...] = ("naive", "decoupled", "staggered")
ORACLE = {
    (4, 4, 8): {1: (42, 36, 33), 2: (42, 36, 33), 4: (42, 36, 33)},
    (8, 4, 8): {1: (39, 33, 30), 2: (39, 33, 30), 4: (39, 33, 30)},
    (4, 8, 16): {1: (87, 73, 66), 2: (87, 73, 66), 8: (97, 73, 66)},
    (16, 2, 4): {1: (18, 16, 15), 2: (18, 16, 15)},
    (4, 8, 8): {1: (54, 40, 38), 2: (54, 40, 38), 8: (54, 40, 38)},
}
"""dp, pp, micro-batches: by number of failures, makespan naive and decoupled, period staggered, by search."""
CAPS = ((4, 3, 2, 1), (5, 4, 3, 2), (4,) * 4, (6, 5, 4, 3), (5,) * 4, (6,) * 4, None)


def main() -> None:
    """Measure and print."""
    parser = common.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="a small sample of each table")
    parser.add_argument("--instances", type=int, default=500, help="random problems, a tenth from the clock")
    parser.add_argument("--oracle-seconds", type=float, default=3.0, help="for CP-SAT, per small problem")
    parser.add_argument("--plot", type=Path, help="write how planning time grows, as SVG")
    parser.add_argument("--only", action="append", help="a table, by its first word; may repeat")
    options = parser.parse_args()
    count = 20 if options.quick else options.instances
    makers: dict[str, Callable[[], list[Row]]] = {
        "known: ReCycle's example and its kin; makespan, makespan, period": oracle_rows,
        f"random: {count} problems, period above the best known lower bound": lambda: random_rows(
            options.seed, count, 0.0 if options.quick else options.oracle_seconds
        ),
        "few: no more micro-batches than stages, period above CP-SAT's proven optimum": lambda: few_rows(
            options.seed, 5 if options.quick else 60, options.oracle_seconds
        ),
        "time: how long planning takes": lambda: timing_rows(is_quick=options.quick),
        "slow: one worker of 4x4x16 at half speed, throughput lost": slow_rows,
        "steps: what each is worth; period (makespan, where the step is synchronous)": ablation_rows,
        "memory: 3x4x6 with a dead worker at stage 2": memory_rows,
    }
    wanted = options.only or [title.split(":")[0] for title in makers]
    tables = {title: make() for title, make in makers.items() if title.split(":")[0] in wanted}
    if options.plot:
        rows = next(rows for title, rows in tables.items() if title.startswith("time"))
        options.plot.write_text(draw(growth_chart(rows)))
    _show(tables, as_json=options.json)


def oracle_rows() -> list[Row]:
    """The tables of the facts, failures in different pipelines."""
    rows = [_oracle_row(hit_problem(3, 4, 6, [Worker(1, s)]), (36, 27 + s, 27), f"1.{s}") for s in range(4)]
    for (dp, pp, microbatches), cases in ORACLE.items():
        for failures, known in cases.items():
            dead = [Worker(n % dp, pp - 1 - n) for n in range(failures)]
            rows.append(_oracle_row(hit_problem(dp, pp, microbatches, dead), known, f"{failures}"))
    return rows


def _oracle_row(problem: Problem, known: tuple[float, ...], dead: str) -> Row:
    plans = {mode: make_plan(problem, mode=mode) for mode in (*RECYCLE_MODES, "adaptive")}
    _check(problem, *plans.values())
    found = (plans["naive"].makespan, plans["decoupled"].makespan, plans["staggered"].period)
    return {
        "job": f"{problem.dp}x{problem.pp}x{problem.microbatches}",
        "dead": dead,
        "1F1B": plans["adaptive"].fault_free.one_f_one_b,
        "naive": found[0],
        "decoupled": found[1],
        "staggered": found[2],
        "adaptive": plans["adaptive"].period,
        "bound": plans["adaptive"].lower_bound,
        "known": "/".join(f"{value:g}" for value in known),
        "is_met": all(ours <= theirs for ours, theirs in zip(found, known, strict=True)),
    }


def random_rows(seed: int, count: int, oracle_seconds: float) -> list[Row]:
    """Gaps of random problems; the last tenth has seeds from the clock."""
    fresh = time.time_ns() % 10**9
    seeds = [seed + n for n in range(count - count // 10)] + [fresh + n for n in range(count // 10)]
    gaps: dict[str, list[tuple[float, int]]] = {"all": [], "cap = pp": [], "cap > pp": [], "no cap": []}
    durations = []
    with common.progress() as bar:
        for each in bar.track(seeds, description="random problems"):
            problem = random_problem(each)
            began_s = time.perf_counter()
            plan = make_plan(problem)
            durations.append(time.perf_counter() - began_s)
            _check(problem, plan, seed=each)
            bound = plan.lower_bound
            if oracle_seconds and _is_small(problem) and plan.period > bound * 1.02:
                bound = max(
                    bound, oracle.lower_bound(problem, Options(time_limit_s=oracle_seconds, threads=2))
                )
            tightness = "no cap" if problem.memory is None else "cap = pp"
            tightness = "cap > pp" if problem.memory and problem.memory[0] > problem.pp else tightness
            for kind in ("all", tightness):
                gaps[kind].append((plan.period / bound - 1, each))
    rows = [_gap_row(kind, found) for kind, found in gaps.items() if found]
    rows[0] |= {"plan_s_median": statistics.median(durations), "plan_s_max": max(durations)}
    rows[0] |= {"clock_seeds": f"{fresh} to {fresh + count // 10 - 1}"}
    return rows


def _is_small(problem: Problem) -> bool:
    return problem.dp * problem.pp * problem.microbatches <= 150


def _gap_row(kind: str, found: list[tuple[float, int]]) -> Row:
    gaps = sorted(gap for gap, _ in found)
    worst = max(found)
    return {
        "problems": kind,
        "count": len(gaps),
        "at_bound": f"{sum(gap < 2e-4 for gap in gaps) / len(gaps):.0%}",
        "median": f"{statistics.median(gaps):.2%}",
        "p95": f"{gaps[min(len(gaps) - 1, int(0.95 * len(gaps)))]:.2%}",
        "worst": f"{worst[0]:.2%}",
        "worst_seed": worst[1],
    }


def few_rows(seed: int, count: int, oracle_seconds: float) -> list[Row]:
    """Gaps to optima that CP-SAT proves, and the case where the load bound is not enough."""
    gaps = []
    with common.progress() as bar:
        for each in bar.track(range(seed, seed + count), description="few micro-batches"):
            problem = small_problem(each)
            plan = make_plan(problem)
            answer = oracle.solve_problem(
                problem, Options(time_limit_s=oracle_seconds, threads=2, hint=plan.timed)
            )
            if answer.is_optimal and answer.best is not None:
                gaps.append((plan.period / answer.best - 1, each))
    rows = [_gap_row(f"{len(gaps)} of {count} proven", gaps)] if gaps else []
    problem = hit_problem(4, 8, 8, [Worker(0, 7)])
    plan = make_plan(problem)
    told = f"4x8x8, 0.7 dead: period {plan.period:g}, bound {plan.lower_bound:g}, load alone 33"
    return [*rows, {"problems": told, "count": 1}]


def timing_rows(*, is_quick: bool) -> list[Row]:
    """How long planning takes, from one worker to 1,536; the best of three, but for the largest."""
    rows = []
    shapes = [(2, 2, 8), (4, 4, 16), (8, 8, 32), (16, 8, 32), (32, 16, 32), (64, 16, 64), (96, 16, 64)]
    for dp, pp, microbatches in shapes[:3] if is_quick else shapes:
        rng = random.Random(dp)
        workers = [Worker(*divmod(n, pp)) for n in rng.sample(range(dp * pp), dp * pp)]
        hit = 3 if dp * pp <= 64 else dp * pp // 20
        for kind, changed in {
            "dead": dict.fromkeys(workers[: min(hit, dp - 1)], 0.0),
            "dead and slow": dict.fromkeys(workers[:hit], 0.0) | dict.fromkeys(workers[hit : 2 * hit], 0.5),
        }.items():
            if kind == "dead and slow" and dp * pp <= 64:
                continue
            speeds = make_speeds(dp, pp, changed)
            problem = Problem(dp=dp, pp=pp, microbatches=microbatches, speeds=speeds)
            rows.append(_timing_row(problem, f"{len(changed)} {kind}"))
    return rows


def _timing_row(problem: Problem, hit: str) -> Row:
    durations = []
    for _ in range(3):
        began_s = time.perf_counter()
        plan = make_plan(problem)
        durations.append(time.perf_counter() - began_s)
    _check(problem, plan)
    return {
        "job": f"{problem.dp}x{problem.pp}x{problem.microbatches}",
        "hit": hit,
        "workers": problem.dp * problem.pp,
        "operations": sum(map(len, plan.schedule.orders)),
        "seconds": round(min(durations), 3),
        "slowest": round(max(durations), 3),
        "above_bound": f"{plan.period / plan.lower_bound - 1:.2%}",
    }


def growth_chart(rows: list[Row]) -> Chart:
    """Planning time over the number of operations."""
    hardest = {row["job"]: (float(row["operations"]), float(row["seconds"])) for row in rows}
    points = tuple(sorted(hardest.values()))
    linear = tuple((x, points[-1][1] * x / points[-1][0]) for x, _ in points)
    series = (
        Series(name="planning", points=points, is_main=True),
        Series(name="linear", points=linear, is_reference=True),
    )
    return Chart(
        title="Planning time grows with the number of operations",
        subtitle=(
            "one core; some workers dead or slow; search ends at the lower bound or when its effort is spent",
        ),
        x_label="operations in the plan",
        panels=(Panel(y_label="seconds", series=series, is_log=True),),
        is_log=True,
    )


def slow_rows() -> list[Row]:
    """One worker at half speed: nothing done, whole replicas rebalanced (FALCON's S2), and Holdfast."""
    problem = Problem(dp=4, pp=4, microbatches=16, speeds=make_speeds(4, 4, {Worker(0, 1): 0.5}))
    plan = make_plan(problem)
    healthy = plan.fault_free
    alone = [Problem(dp=1, pp=4, microbatches=16, speeds=(speeds,)) for speeds in problem.speeds]
    nothing = max(time_schedule(each, one_f_one_b(each)).period for each in alone)
    counts = split(64, [min(speeds) for speeds in problem.speeds], overhead=3)
    by_four = [4 * count for count in split(16, [min(speeds) for speeds in problem.speeds], overhead=0.75)]
    values = {
        "nothing": nothing,
        f"FALCON S2, {counts}": _replicas(alone, counts),
        f"FALCON S2 by multiples of pp, {by_four}": _replicas(alone, by_four),
        "Holdfast": plan.period,
    }
    return [
        {
            "what": name,
            "period": value,
            "lost_vs_1F1B": f"{1 - healthy.one_f_one_b / value:.1%}",
            "lost_vs_zero_bubble": f"{1 - healthy.zero_bubble / value:.1%}",
        }
        for name, value in values.items()
    ]


def _replicas(alone: list[Problem], counts: list[int]) -> float:
    """The step of replicas that each run 1F1B with their own number of micro-batches."""
    sized = [
        msgspec.structs.replace(each, microbatches=count) for each, count in zip(alone, counts, strict=True)
    ]
    return max(time_schedule(each, one_f_one_b(each)).period for each in sized)


def ablation_rows() -> list[Row]:
    """Each of ReCycle's steps, shares by speed, and the zero-bubble job that all of them start from."""
    cases = {
        "3x4x6, 1.2 dead": hit_problem(3, 4, 6, [Worker(1, 2)]),
        "8x8x32, 3 dead": hit_problem(8, 8, 32, [Worker(0, 7), Worker(3, 7), Worker(5, 2)]),
        "4x4x16, 0.1 at half speed": Problem(
            dp=4, pp=4, microbatches=16, speeds=make_speeds(4, 4, {Worker(0, 1): 0.5})
        ),
        "4x8x16, 1.3 dead, 2.5 at half speed, cap 12": Problem(
            dp=4, pp=8, microbatches=16, memory=(12,) * 8,
            speeds=make_speeds(4, 8, {Worker(1, 3): 0.0, Worker(2, 5): 0.5}),
        ),
    }  # fmt: skip
    rows = []
    for name, problem in cases.items():
        plans = {mode: make_plan(problem, mode=mode) for mode in (*RECYCLE_MODES, "adaptive")}
        _check(problem, *plans.values())
        rows.append(
            {
                "case": name,
                "1F1B": plans["adaptive"].fault_free.one_f_one_b,
                "naive": plans["naive"].makespan,
                "decoupled": plans["decoupled"].makespan,
                "staggered": plans["staggered"].period,
                "weighted": plans["adaptive"].period,
                "bound": plans["adaptive"].lower_bound,
                "zero-bubble": plans["adaptive"].fault_free.zero_bubble,
            }
        )
    return rows


def memory_rows() -> list[Row]:
    """What a cap on micro-batches in flight costs."""
    rows = []
    for cap in CAPS:
        problem = msgspec.structs.replace(hit_problem(3, 4, 6, [Worker(1, 2)]), memory=cap)
        plans = {mode: make_plan(problem, mode=mode) for mode in ("decoupled", "adaptive")}
        _check(problem, *plans.values())
        rows.append(
            {
                "cap_per_stage": "none" if cap is None else str(list(cap)),
                "decoupled_makespan": plans["decoupled"].makespan,
                "adaptive_period": plans["adaptive"].period,
                "bound": plans["adaptive"].lower_bound,
                "zero_bubble_fault_free": plans["adaptive"].fault_free.zero_bubble,
                "peak_in_flight": max(plans["adaptive"].timed.peak_in_flight.values()),
            }
        )
    return rows


def _check(problem: Problem, *plans: Any, seed: int | None = None) -> None:
    """Stop at once if a plan is not valid or beats its own bound: then no figure here means anything."""
    for plan in plans:
        violations = validate(problem, plan.timed)
        if violations or plan.period < plan.lower_bound * (1 - 1e-9):
            raise SystemExit(f"invalid plan, seed {seed}: {plan.period} {plan.lower_bound} {violations[:1]}")


def _show(tables: dict[str, list[Row]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"tables": tables, "hardware": common.hardware()}))
        return
    for title, rows in tables.items():
        columns = {key: None for row in rows for key in row}
        common.show(title, [{key: row.get(key, "") for key in columns} for row in rows], (), as_json=False)
        print()


if __name__ == "__main__":
    main()
