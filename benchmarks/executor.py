"""What the executor of ``holdfast.Pipeline`` costs while nothing fails.

overhead: CPU time of a step (user and system, all threads, all ranks), ours as a multiple of torch's own
schedules; same weights, micro-batches and order of operations, one thread per rank, AdamW, no clipping, gloo.
The contenders take turns of ``--steps`` steps in the same processes; a ratio is the median over ``--pairs``
turns of each. Ours pays for finite checks, tallies, a status page and, staggered, a shadow of its state;
exact adds sums in integers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
from stock import overhead, periods, workload

Row = dict[str, Any]
Part = Callable[[argparse.Namespace], list[Row]]


def main() -> None:
    """Measure and print."""
    parser = common.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="few pairs of few steps")
    parser.add_argument("--pairs", type=int, default=11, help="turns of each executor")
    parser.add_argument("--steps", type=int, default=10, help="measured steps of a turn")
    parser.add_argument("--op-ms", type=float, default=40.0, help="an emulated operation of `periods`")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; may repeat")
    options = parser.parse_args()
    wanted = options.only or list(PARTS)
    # Where the workers find the jobs, which they run as modules.
    with contextlib.chdir(Path(__file__).parent):
        tables = {title: make(options) for name, (title, make) in PARTS.items() if name in wanted}
    _show(tables, as_json=options.json)


def overhead_part(options: argparse.Namespace) -> list[Row]:
    """CPU time of a step against torch's own schedules."""
    pairs, steps = (3, 3) if options.quick else (options.pairs, options.steps)
    return overhead.overhead_rows(pairs=pairs, steps=steps, seed=options.seed)


def periods_part(options: argparse.Namespace) -> list[Row]:
    """Measured periods against planned ones, on emulated accelerators."""
    turns, steps = (1, 16) if options.quick else (3, 40)
    return periods.period_rows(turns=turns, steps=steps, op_ms=options.op_ms)


_MODEL = f"GPT of width {workload.WIDTH}, {workload.LAYERS} layers, batch {workload.BATCH}x{workload.LENGTH}"
PARTS: dict[str, tuple[str, Part]] = {
    "overhead": (f"overhead: CPU time of a step over torch's, {_MODEL}", overhead_part),
    "periods": ("periods: 3x4x6 on emulated accelerators, staggered, beside the plan", periods_part),
}


def load_note() -> str:
    """Say how busy the machine was."""
    return "load average at the end: " + ", ".join(f"{each:.1f}" for each in os.getloadavg())


def _show(tables: dict[str, list[Row]], *, as_json: bool) -> None:
    if as_json:
        found = {"tables": tables, "load": load_note(), "hardware": common.hardware()}
        print(json.dumps(found))
        return
    for title, rows in tables.items():
        common.show(title, rows, (load_note(),), as_json=False)
        print()


if __name__ == "__main__":
    main()
