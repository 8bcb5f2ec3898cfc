"""Hundreds of failures and returns in one run: the spot trace of AWS P3 instances on 3 x 4 workers.

Every node that arrives does what ``holdfast join`` does (forked from a process that has imported torch: a
dozen nodes boot on the cores of one machine here), and takes the lowest free of the 12 places or waits as a
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
from holdfast.serve.chart import Chart, Panel, Series, draw
from holdfast.values import JobStopped, Regrouped
from returning.foretold import Costs, Shape, Span, foretell
from returning.forked import preload
from returning.runs import Launched
from returning.spot import Fleet, Sample, play, read_trace

DP, PP, MICROBATCHES = 3, 4, 6
WORKERS = DP * PP
SMALL = ["--width", "16", "--batch", "1", "--length", "8"]
"""Little to compute: what takes time is emulated, and the cores are for those who start."""
WINDOW_S = 20.0


def main() -> None:
    """Play the trace, and tell what came of it."""
    options = parse()
    changes = [change for change in read_trace(options.trace) if change.at_s <= options.until_s]
    first, rest = changes[:WORKERS], changes[WORKERS:]
    shape = Shape(DP, PP, MICROBATCHES, options.op_ms / 1000)
    costs = Costs(options.start_s, options.enter_s, options.pause_s)
    spans = foretell(shape, [change.node for change in first], rest, options.compress, costs)
    steps = options.steps or int(sum(span.steps for span in spans))
    calm = _calm(steps)
    with tempfile.TemporaryDirectory() as folder:
        job = [*_job(steps), "--op-ms", str(options.op_ms), "--checkpoints", f"{folder}/checkpoints"]
        run = Launched(Path(folder), WORKERS, ["--max-restarts", "20"], job)
        run.wait(lambda: run.last_step() > 2)
        preload()
        fleet = Fleet(run, [change.node for change in first])
        samples = []
        with common.progress() as bar:
            task = bar.add_task("soak", total=steps)
            for sample in play(run, fleet, rest, options.compress, 1.0):
                samples.append(sample)
                bar.update(task, completed=sample.step)
        fleet.close()
        row = _tell(run, calm, len(changes)) | _compare(samples, spans)
        if options.plot is not None:
            options.plot.write_text(_draw(samples, spans, shape.steps_per_s(frozenset())))
        if not row["same bits"] and options.keep is not None:
            options.keep.write_text(run.said + run.joined.read_text(errors="replace"))
    common.show("soak", [row], _notes(samples, steps, options), as_json=options.json)
    sys.exit(not row["same bits"])


def _calm(steps: int) -> set[str]:
    with tempfile.TemporaryDirectory() as folder:
        run = Launched(Path(folder), WORKERS, [], _job(steps))
        run.process.wait(3600)
        return set(run.digests().values())


def _compare(samples: list[Sample], spans: list[Span]) -> dict[str, Any]:
    """Compare how far it came in the time of the trace with what was foretold."""
    end_s = min(samples[-1].at_s, spans[-1].end_s)
    until = [each for each in samples if each.at_s <= end_s]
    measured = (until[-1].step - until[0].step) / (until[-1].at_s - until[0].at_s)
    return {"of simulated": round(measured / _between(spans, until[0].at_s, until[-1].at_s), 3)}


def _tell(run: Launched, calm: set[str], changes: int) -> dict[str, Any]:
    regroups = [event for event in run.events() if isinstance(event, Regrouped)]
    after = [event for event in regroups if event.generation]
    return {
        "changes": changes,
        "generations": len(regroups),
        "entered": sum(len(event.newcomers) for event in regroups),
        "fall-backs": sum(isinstance(event, JobStopped) for event in run.events()),
        "plans ready": f"{sum(event.was_ready for event in after)} of {len(after)}",
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


def _draw(samples: list[Sample], spans: list[Span], healthy: float) -> str:
    """Draw steps per second beside what was foretold, and what as many workers would do at best."""
    edges = [(a, b) for a, b in pairwise(samples[:: max(1, int(WINDOW_S))]) if b.at_s > a.at_s]
    measured = tuple(((a.at_s + b.at_s) / 120, (b.step - a.step) / (b.at_s - a.at_s)) for a, b in edges)
    windows = [(a.at_s, b.at_s) for a, b in edges]
    foretold = tuple(((a + b) / 120, _between(spans, a, b)) for a, b in windows)
    scaled = tuple((each.start_s / 60, healthy * each.placed / WORKERS) for each in spans)
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
                        Series(name="fault-scaled", points=scaled, is_step=True, is_reference=True),
                        Series(name="simulated", points=foretold),
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


def _between(spans: list[Span], start_s: float, end_s: float) -> float:
    """Return the steps per second that were foretold for a window, pauses included."""
    steps = 0.0
    for span in spans:
        begin_s = max(start_s, span.start_s + span.pause_s)
        steps += max(0.0, min(end_s, span.end_s) - begin_s) * span.steps_per_s
    return steps / (end_s - start_s)


def _job(steps: int) -> list[str]:
    return [*SMALL, "--pp", str(PP), "--microbatches", str(MICROBATCHES), "--steps", str(steps)]


def parse() -> argparse.Namespace:
    """Return the options."""
    made = common.parser(__doc__)
    made.add_argument("trace", type=Path, help="rows of milliseconds, add or remove, node")
    made.add_argument("--compress", type=float, default=20.0, help="how many times as fast")
    made.add_argument("--until-s", type=float, default=1e9, help="only the beginning of the trace")
    made.add_argument("--steps", type=int, default=0, help="0: as many as the trace takes")
    made.add_argument("--op-ms", type=float, default=10.0)
    made.add_argument("--start-s", type=float, default=6.0, help="foretold: from arrival to a place")
    made.add_argument("--enter-s", type=float, default=2.0, help="foretold: from a place to work")
    made.add_argument("--pause-s", type=float, default=0.3, help="foretold: nobody trains at a change")
    made.add_argument("--plot", type=Path, help="write a picture, an SVG")
    made.add_argument("--keep", type=Path, help="write what was printed, if it went wrong")
    return made.parse_args()


if __name__ == "__main__":
    main()
