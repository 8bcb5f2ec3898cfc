"""What follows a failure: a worker comes back, two change places, a job goes on from its checkpoint.

Pipelines of emulated accelerators under ``holdfast run``, with real kills. ``--part`` chooses: ``rejoin``
(beside what torchft takes on the same machine), ``swap``, ``fallback``.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import common
from returning import entries, fallbacks, swaps

PARTS = ("rejoin", "swap", "fallback")


def main() -> None:
    """Run the parts, and print a table for each; exit with 1 if any run did not end as it should."""
    options = parse()
    is_good = True
    for part in options.part or PARTS:
        rows, notes = _fall_back(options) if part == "fallback" else _each_shape(part, options)
        common.show(part, rows, [*notes, "emulated accelerators, CPU with gloo"], as_json=options.json)
        is_good = is_good and all(row["same bits"] for row in rows)
    sys.exit(not is_good)


def _each_shape(part: str, options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    measure = entries.measure if part == "rejoin" else swaps.measure
    rows = []
    with common.progress() as bar:
        for shape in options.shape or entries.SHAPES:
            calm = entries.digests_of(shape, options.op_ms)
            for seed in bar.track(range(options.seed, options.seed + options.count), description=shape):
                rows.append(measure(shape, seed, calm, options.op_ms))
    if part != "rejoin":
        return rows, []
    return rows, [entries.summary(rows), *entries.beside(options.count, options.seed)]


def _fall_back(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    row = fallbacks.measure(options.kills, options.seed, options.steps)
    return [row], [f"a checkpoint every {fallbacks.EVERY} steps; only whole steps are lost"]


def parse() -> argparse.Namespace:
    """Return the options."""
    made = common.parser(__doc__)
    made.add_argument("--part", action="append", choices=PARTS)
    made.add_argument("--shape", action="append", choices=list(entries.SHAPES))
    made.add_argument("--count", type=int, default=5, help="runs of each shape")
    made.add_argument("--kills", type=int, default=50, help="of whole jobs")
    made.add_argument("--steps", type=int, default=4000, help="of the job that is killed as a whole")
    made.add_argument("--op-ms", type=float, default=10.0)
    return made.parse_args()


if __name__ == "__main__":
    main()
