"""Closing the loop: what is decided about slow workers and links, what it costs and what it saves.

The decisions of ``holdfast.mitigate`` over a simulated cluster. ``--only`` chooses parts: ``shares`` (S2
against all splits), ``bars`` (the simulated world against FALCON's published figures), ``single`` and
``compound`` (seeded incident histories against a clairvoyant), ``schedules`` (FALCON's runs of 64 and 256
GPUs), ``healthy`` and ``liars``. ``real`` is not simulated: 8 workers on emulated accelerators, for an hour.
"""

from __future__ import annotations

from pathlib import Path

import common
from mitigating import bars, calm, histories, real, schedules, shares

PARTS = {
    "shares": shares.measure,
    "bars": bars.measure,
    "single": histories.single,
    "compound": histories.compound,
    "schedules": schedules.measure,
    "healthy": calm.healthy,
    "liars": calm.liars,
    "real": real.measure,
}


def main() -> None:
    """Print the parts that were asked for."""
    made = common.parser(__doc__)
    made.add_argument("--only", action="append", choices=list(PARTS))
    made.add_argument("--histories", type=int, default=10_000, help="of each kind")
    made.add_argument("--shape", action="append", choices=list(real.SHAPES), help="of the real jobs")
    made.add_argument("--case", choices=["schedule", "compound"], help="of the real jobs")
    made.add_argument("--keep", type=Path, help="a folder for what the real jobs leave")
    made.add_argument("--plot", type=Path, help="a folder for pictures of the real jobs")
    options = made.parse_args()
    if options.histories < 1:
        made.error(f"--histories is {options.histories}, expected at least 1")
    common.run_parts(PARTS, options)


if __name__ == "__main__":
    main()
