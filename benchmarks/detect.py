"""How well slow jobs are noticed from their step times alone.

*real*: the series of real jobs in ``$HOLDFAST_DATA/iterations``, whose column ``injected`` says when a fault
was there. *mix*: 499 synthetic jobs in the mix of FALCON's study; a fault counts from 1.10 x the healthy step
time for 20 steps on, what is smaller counts neither way. *hard*: kinds of jobs that detectors get wrong.
Rivals are shown with the best of the parameters that their sources leave open, chosen on these very jobs;
ours has none.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import common
from holdfast.detect.steps import StepDetector
from series import rivals
from series.falcon import draw_jobs
from series.hard import KINDS, draw_hard
from series.score import Report, Score
from series.truth import Job, runs_of

Row = dict[str, Any]


def main() -> None:
    """Measure what was asked for."""
    parser = common.parser(__doc__)
    parser.add_argument("--only", action="append", choices=["real", "mix", "hard"])
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs")
    parser.add_argument("--ours", action="store_true", help="without the rivals")
    options = parser.parse_args()
    parts = {"real": real, "mix": mix, "hard": hard}
    for name in options.only or parts:
        part = parts[name](options)
        common.show(name, part.rows, part.notes, as_json=options.json)


# --- real -------------------------------------------------------------------------------------


def real(options: argparse.Namespace) -> common.Part:
    """Every onset and relief of real series."""
    folder = os.environ.get("HOLDFAST_DATA")
    if not folder:
        return common.Part([{"series": "none"}], ["set HOLDFAST_DATA to the folder of the data"])
    rows = [_real_row(path) for path in sorted(Path(folder).glob("iterations/*.csv"))]
    return common.Part(rows, ["a change is found if it is told within 20 steps after it, with its direction"])


def _real_row(path: Path) -> Row:
    truth, told = _real_truth(path), _real_changes(path)
    late = []
    for attempt, step, direction in truth:
        waits = [
            d - step for a, s, d, kind in told if a == attempt and kind == direction and 0 <= d - step <= 20
        ]
        late += [min(waits)] if waits else []
    near = [
        any(a == attempt and kind == way and abs(s - at) <= 20 for attempt, at, way in truth)
        for a, s, _, kind in told
    ]
    return {
        "series": path.stem,
        "changes": len(truth),
        "found": len(late),
        "false_alarms": near.count(False),
        "latency_median": float(np.median(late)) if late else None,
        "latency_worst": max(late, default=None),
    }


def _read(path: Path) -> dict[str, list[tuple[int, float, bool]]]:
    attempts: dict[str, list[tuple[int, float, bool]]] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            found = (int(row["iteration"]), float(row["duration_s"]), row["injected"] == "1")
            attempts.setdefault(row["attempt"], []).append(found)
    return attempts


def _real_truth(path: Path) -> list[tuple[str, int, str]]:
    found = []
    for attempt, rows in _read(path).items():
        for start, end in runs_of(np.array([is_bad for _, _, is_bad in rows])):
            found.append((attempt, rows[start][0], "slow"))
            found.append((attempt, rows[end][0], "relief"))
    return found


def _real_changes(path: Path) -> list[tuple[str, int, int, str]]:
    told: list[tuple[str, int, int, str]] = []
    for attempt, rows in _read(path).items():
        detector = StepDetector()
        for step, duration_s, _ in rows:
            changes = detector.update(step, duration_s)
            told += [(attempt, each.step, each.detected_step, each.direction) for each in changes]
    return told


# --- synthetic --------------------------------------------------------------------------------


def mix(options: argparse.Namespace) -> common.Part:
    """FALCON's 499 jobs."""
    jobs = draw_jobs(options.seed)
    jobs = jobs[::10] if options.quick else jobs
    rows = contest(jobs, has_rivals=not options.ours)
    return common.Part(rows, [f"{len(jobs)} jobs of 10,000 steps, seed {options.seed}; FALCON: 498 of 499"])


def hard(options: argparse.Namespace) -> common.Part:
    """Each hard kind in rows of its own."""
    rows = []
    for kind in KINDS:
        jobs = draw_hard(kind, options.seed)
        jobs = jobs[::5] if options.quick else jobs
        for row in contest(jobs, has_rivals=not options.ours):
            rows.append({"kind": kind, **row})
    return common.Part(rows, [f"60 jobs of 3,000 steps for each kind, seed {options.seed}"])


def contest(jobs: Sequence[Job], *, has_rivals: bool) -> list[Row]:
    """Return a row for ours and for each rival."""
    contenders: dict[tuple[str, str], rivals.Detector] = {("holdfast", "-"): rivals.ours}
    if any(job.work is not None for job in jobs):
        contenders["holdfast", "times alone"] = rivals.ours_without_work
    for name, variants in rivals.RIVALS.items() if has_rivals else ():
        contenders |= {(name, words): detect for words, detect in variants}
    scores = _scores(list(contenders.values()), jobs)
    rows: dict[str, tuple[str, Score]] = {}
    for (name, words), score in zip(contenders, scores, strict=True):
        key = f"{name}, {words}" if name == "holdfast" else name
        if key not in rows or _rank(score) > _rank(rows[key][1]):
            rows[key] = (words, score)
    return [
        {"detector": key.split(", -")[0], "with": words, **score.row()}
        for key, (words, score) in rows.items()
    ]


def _rank(score: Score) -> tuple[int, int, int]:
    return score.right, score.found, -score.false


_work: tuple[Sequence[rivals.Detector], Sequence[Job]] = ((), ())
"""For the processes that are forked off: functions within functions cannot be sent to them."""


def _scores(detectors: Sequence[rivals.Detector], jobs: Sequence[Job]) -> list[Score]:
    global _work  # noqa: PLW0603
    _work = (detectors, jobs)
    scores = [Score() for _ in detectors]
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool, common.progress() as bar:
        found = pool.imap(_all_reports, range(len(jobs)))
        for job, reports in zip(jobs, bar.track(found, total=len(jobs), description="jobs"), strict=True):
            for score, each in zip(scores, reports, strict=True):
                score.add(job, each)
    return scores


def _all_reports(number: int) -> list[list[Report]]:
    detectors, jobs = _work
    return [detect(jobs[number]) for detect in detectors]


if __name__ == "__main__":
    main()
