"""What the death or the hang of a worker costs a pipeline job, and whether its parameters stay the same.

*kills*: random deaths; every run must end with the parameters of a run without faults, bit for bit.
*pause*: the wall time that a death costs, beside torchft (at its defaults and tuned) and a restart by
torchrun. *stop*: SIGSTOP of a worker under ``holdfast run``. *calm*: runs without faults on fully loaded
cores, in which nobody may be killed. *curve*: loss and throughput through ten failures, drawn with
``--picture``. Timed parts want a machine without other work.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import common
from survival import curve, hangs, kills, pauses


def main() -> None:
    """Measure what was asked for; exit with 1 if a run did not end as it should."""
    options = _options()
    parts = {
        "kills": lambda: kills.measure(options.count or 200, options.seed),
        "pause": lambda: pauses.measure(options.count or 10, options.seed),
        "stop": lambda: hangs.measure_stops(options.count or 10, options.seed),
        "calm": lambda: hangs.measure_calm(options.count or 50),
        "curve": lambda: curve.measure(options.seed, options.picture),
    }
    is_good = True
    for name in options.only or parts:
        part = parts[name]()
        common.show(name, part.rows, part.notes, as_json=options.json)
        is_good = is_good and part.is_good
    sys.exit(not is_good)


def _options() -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--only", action="append", choices=["kills", "pause", "stop", "calm", "curve"])
    parser.add_argument("--count", type=int, help="how many runs of each part")
    parser.add_argument("--picture", type=Path, help="where to draw the curve")
    return parser.parse_args()


if __name__ == "__main__":
    main()
