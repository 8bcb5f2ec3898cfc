"""Hundreds of failures and returns in one run: the spot trace of AWS P3 instances on 3 x 4 workers.

Every node that arrives runs ``holdfast join``, and takes the lowest free of the 12 places or waits as a
spare; every node that is taken away is killed. Time is compressed. At the end the parameters have to be those
of a run in which nothing happened.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import common
from holdfast.plan.planner import make_plan
from holdfast.plan.problem import Problem, Worker, make_speeds
from holdfast.serve.chart import Chart, Panel, Series, draw
from holdfast.values import JobStopped, Regrouped
from returning.runs import Launched
from returning.spot import Fleet, Sample, play, read_trace

DP, PP, MICROBATCHES = 3, 4, 6
WORKERS = DP * PP
WINDOW_S = 20.0


def main() -> None:
    """Play the trace, and tell what came of it."""
    options = parse()
    changes = [change for change in read_trace(options.trace) if change.at_s <= options.until_s]
    first, rest = changes[:WORKERS], changes[WORKERS:]
    unit_s = options.op_ms / 1000
    healthy_s = make_plan(Problem(dp=DP, pp=PP, microbatches=MICROBATCHES)).period * unit_s
    steps = options.steps or int(1.02 * rest[-1].at_s / options.compress / healthy_s)
    calm = _calm(steps)
    with tempfile.TemporaryDirectory() as folder:
        job = [*_job(steps), "--op-ms", str(options.op_ms), "--checkpoints", f"{folder}/checkpoints"]
        run = Launched(Path(folder), WORKERS, ["--max-restarts", "20"], job)
        run.wait(lambda: run.last_step() > 2)
        fleet = Fleet(run, [change.node for change in first])
        samples = []
        with common.progress() as bar:
            task = bar.add_task("soak", total=steps)
            for sample in play(run, fleet, rest, options.compress, 1.0):
                samples.append(sample)
                bar.update(task, completed=sample.step)
        fleet.close()
        row = _tell(run, samples, calm, len(changes))
        if options.plot is not None:
            options.plot.write_text(_draw(run, samples, unit_s))
        if not row["same bits"] and options.keep is not None:
            options.keep.write_text(run.said)
    common.show("soak", [row], _notes(samples, steps, options), as_json=options.json)
    sys.exit(not row["same bits"])


def _calm(steps: int) -> set[str]:
    with tempfile.TemporaryDirectory() as folder:
        run = Launched(Path(folder), WORKERS, [], _job(steps))
        run.process.wait(3600)
        return set(run.digests().values())


def _tell(run: Launched, samples: list[Sample], calm: set[str], changes: int) -> dict[str, Any]:
    regroups = [event for event in run.events() if isinstance(event, Regrouped)]
    after = regroups[1:]
    generations = [event.generation for event in regroups]
    return {
        "changes": changes,
        "generations": len(regroups),
        "entered": sum(len(event.newcomers) for event in regroups),
        "fall-backs": sum(isinstance(event, JobStopped) for event in run.events()),
        "plans ready": f"{sum(event.was_ready for event in after)} of {len(after)}",
        "numbers repeat": len(set(generations)) != len(generations),
        "same bits": run.process.returncode == 0 and set(run.digests().values()) == calm,
    }


def _notes(samples: list[Sample], steps: int, options: argparse.Namespace) -> list[str]:
    quarter = max(1, len(samples) // 4)

    def change(name: str) -> str:
        early = statistics.median(getattr(each, name) for each in samples[quarter : 2 * quarter])
        late = statistics.median(getattr(each, name) for each in samples[-quarter:])
        return f"{early:.0f} to {late:.0f}"

    return [
        f"{steps} steps, the trace {options.compress:g} times as fast",
        f"second to last quarter: launcher and guard {change('memory_mb')} MB, {change('files')} files; "
        f"oldest worker {change('worker_mb')} MB, {change('worker_files')} files",
        "emulated accelerators, CPU with gloo",
    ]


def _draw(run: Launched, samples: list[Sample], unit_s: float) -> str:
    """Draw steps per second beside what the plans say, and what as many workers would do at best."""
    spans = [(a, b) for a, b in pairwise(samples[:: max(1, int(WINDOW_S))]) if b.at_s > a.at_s]
    measured = tuple(((a.at_s + b.at_s) / 120, (b.step - a.step) / (b.at_s - a.at_s)) for a, b in spans)
    planned, scaled = [], []
    healthy = 1 / (_period(list(range(WORKERS))) * unit_s)
    for at_s, event in _regroups(run, samples):
        planned.append((at_s / 60, 1 / (_period(event.places or event.members) * unit_s)))
        scaled.append((at_s / 60, healthy * len(event.members) / WORKERS))
    workers = tuple((each.at_s / 60, float(min(WORKERS, each.workers))) for each in samples)
    return draw(
        Chart(
            title="Training through a spot trace",
            subtitle=(
                "3 x 4 workers, real processes, kills and returns; emulated accelerators, CPU with gloo",
            ),
            x_label="minutes",
            panels=(
                Panel(
                    y_label="steps per second",
                    series=(
                        Series(name="fault-scaled", points=tuple(scaled), is_step=True, is_reference=True),
                        Series(name="planned", points=tuple(planned), is_step=True),
                        Series(name="measured", points=measured, is_main=True),
                    ),
                ),
                Panel(
                    y_label="nodes",
                    series=(Series(name="up to 12", points=workers, is_step=True, is_area=True),),
                    height=70,
                ),
            ),
        )
    )


def _regroups(run: Launched, samples: list[Sample]) -> list[tuple[float, Regrouped]]:
    """Return when each generation began, on the clock of the samples, by the steps that they had made."""
    found = []
    for event in run.events():
        if isinstance(event, Regrouped):
            at_s = next((each.at_s for each in samples if each.step >= event.version), samples[-1].at_s)
            found.append((at_s, event))
    return found


def _period(places: list[int]) -> float:
    gone = {Worker(*divmod(place, PP)): 0.0 for place in range(WORKERS) if place not in places}
    return make_plan(
        Problem(dp=DP, pp=PP, microbatches=MICROBATCHES, speeds=make_speeds(DP, PP, gone))
    ).period


def _job(steps: int) -> list[str]:
    return ["--pp", str(PP), "--microbatches", str(MICROBATCHES), "--steps", str(steps), "--width", "32"]


def parse() -> argparse.Namespace:
    """Return the options."""
    made = common.parser(__doc__)
    made.add_argument("trace", type=Path, help="rows of milliseconds, add or remove, node")
    made.add_argument("--compress", type=float, default=20.0, help="how many times as fast")
    made.add_argument("--until-s", type=float, default=1e9, help="only the beginning of the trace")
    made.add_argument("--steps", type=int, default=0, help="0: as many as the trace takes")
    made.add_argument("--op-ms", type=float, default=10.0)
    made.add_argument("--plot", type=Path, help="write a picture, an SVG")
    made.add_argument("--keep", type=Path, help="write what was printed, if it went wrong")
    return made.parse_args()


if __name__ == "__main__":
    main()
