"""Closing the loop: what is decided about slow workers and links, what it costs and what it saves.

The decisions of ``holdfast.mitigate`` over a simulated cluster. ``--only`` chooses parts: ``shares`` (S2
against all splits), ``bars`` (the simulated world against FALCON's published figures), ``single`` and
``compound`` (seeded incident histories against a clairvoyant), ``schedules`` (FALCON's runs of 64 and 256
GPUs), ``healthy`` and ``liars``.
"""

from __future__ import annotations

import common
from mitigating import bars, calm, histories, schedules, shares

PARTS = {
    "shares": shares.measure,
    "bars": bars.measure,
    "single": histories.single,
    "compound": histories.compound,
    "schedules": schedules.measure,
    "healthy": calm.healthy,
    "liars": calm.liars,
}


def main() -> None:
    """Print the parts that were asked for."""
    made = common.parser(__doc__)
    made.add_argument("--only", action="append", choices=list(PARTS))
    made.add_argument("--histories", type=int, default=10_000, help="of each kind")
    common.run_parts(PARTS, made.parse_args())


if __name__ == "__main__":
    main()
