"""Localisation at scale: how long it takes for 10^4 to 10^6 workers, and who is named, beside EROICA's rule.

One core. Patterns of twenty functions, with roles (25/75), noise that neighbours share, 5 % of the workers
missing, guilty ones and victims. *time*: CPU seconds and memory. *found*: precision and recall by fault and
severity, the share of a step that the fault takes.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from typing import Any

import common

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from holdfast.diagnose.localise import localise
from holdfast.diagnose.published import find_abnormal
from patterned.made import FAULTS, Made, make

PAPER_S = {10**4: 1.8, 10**5: 17.3, 10**6: 184.0}
"""EROICA's, one core of another machine."""
AIM_S = {10**4: 0.3, 10**5: 2.0, 10**6: 20.0}
SEVERITIES = (0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2)


def main() -> None:
    """Measure what was asked for."""
    parser = common.parser(__doc__)
    parser.add_argument("--only", action="append", choices=["time", "found"])
    parser.add_argument("--quick", action="store_true", help="at most 10^5 workers, few seeds")
    options = parser.parse_args()
    common.run_parts({"time": times, "found": found}, options)


def times(options: argparse.Namespace) -> common.Part:
    """Ours and the published rule on the same patterns."""
    rows: list[dict[str, Any]] = []
    for workers in sorted(AIM_S)[: 2 if options.quick else 3]:
        made = make(workers, "nic", 0.1, np.random.default_rng(options.seed))
        began_s = time.process_time()
        localise(made.patterns, made.roles)
        ours_s = time.process_time() - began_s
        began_s = time.process_time()
        find_abnormal(made.patterns, np.random.default_rng(options.seed))
        theirs_s = time.process_time() - began_s
        patterns = made.patterns
        rows.append(
            {
                "workers": workers,
                "ours_s": ours_s,
                "published_rule_s": theirs_s,
                "times_faster": theirs_s / ours_s,
                "aim_s": AIM_S[workers],
                "paper_s": PAPER_S[workers],
                "patterns_mb": sum(each.nbytes for each in (patterns.beta, patterns.mu, patterns.sigma))
                / 1e6,
            }
        )
        del made, patterns
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    is_good = all(row["ours_s"] <= row["aim_s"] for row in rows)
    return common.Part(
        rows, [f"peak memory of the process, the making of patterns included: {peak:.1f} GB"], is_good
    )


def found(options: argparse.Namespace) -> common.Part:
    """Precision and recall of both rules, over seeds."""
    seeds = range(options.seed, options.seed + (3 if options.quick else 20))
    workers = 3400
    rows = []
    with common.progress() as bar:
        for fault in bar.track(FAULTS, description="faults"):
            for severity in SEVERITIES if fault != "healthy" else (0.0,):
                jobs = [make(workers, fault, severity, np.random.default_rng([seed, 7])) for seed in seeds]
                rows.append({"fault": fault, "severity": f"{severity:g}", **_score(jobs)})
    silent = [row for row in rows if row["fault"] == "healthy"]
    return common.Part(
        rows,
        [
            f"{workers} workers, {len(seeds)} jobs in each row; precision and recall of ranks",
            "uneven and storage are common to all workers: all of them are the right answer",
        ],
        is_good=all(row["jobs with a false name"] == 0 for row in silent),
    )


def _score(jobs: list[Made]) -> dict[str, Any]:
    hits = named = guilty = wrong = theirs_hits = theirs_named = 0
    for job in jobs:
        ranks = {rank for finding in localise(job.patterns, job.roles) for rank in finding.ranks}
        abnormal = find_abnormal(job.patterns, np.random.default_rng(0)).any(axis=0)
        theirs = set(job.patterns.ranks[abnormal].tolist())
        hits, named, guilty = hits + len(ranks & job.guilty), named + len(ranks), guilty + len(job.guilty)
        theirs_hits, theirs_named = theirs_hits + len(theirs & job.guilty), theirs_named + len(theirs)
        wrong += bool(ranks - job.guilty)
    return {
        "precision": f"{hits / named:.3f}" if named else "",
        "recall": f"{hits / guilty:.3f}" if guilty else "",
        "jobs with a false name": wrong,
        "precision of EROICA's": f"{theirs_hits / theirs_named:.3f}" if theirs_named else "",
        "recall of EROICA's": f"{theirs_hits / guilty:.3f}" if guilty else "",
        "named by EROICA's": theirs_named / len(jobs),
    }


if __name__ == "__main__":
    main()
