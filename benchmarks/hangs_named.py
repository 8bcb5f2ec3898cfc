"""How well the guilty ranks of a hang are named from Flight Recorder dumps.

*made*: simulated jobs (tensor, pipeline and data parallel, hosts that run ahead of devices) in which one
or two ranks stop at the same moment. *real*: the dumps of real jobs in ``$HOLDFAST_DATA/flight_recorder``,
whole, and with the dump of every rank left out in turn.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import common
from holdfast.diagnose.hangs import diagnose_hang
from holdfast.observe.flight import read_dumps
from holdfast.observe.flightdump import Dump
from stuck.cases import Outcome, judge, make_case
from stuck.job import Fault

Row = dict[str, Any]
KINDS: list[tuple[str, Fault, bool | None]] = [
    ("host stuck", "host", None),
    ("device stuck, timing recorded", "device", True),
    ("device stuck, no timing", "device", False),
    ("device lost", "lost", None),
    ("process dead, no dump", "dead", None),
]


def main() -> None:
    """Measure what was asked for."""
    parser = common.parser(__doc__)
    parser.add_argument("--only", action="append", choices=["made", "real"])
    parser.add_argument("--seeds", type=int, default=500, help="of each kind")
    options = parser.parse_args()
    wanted = options.only or ["made", "real"]
    if "made" in wanted:
        part = made(range(options.seed, options.seed + options.seeds))
        common.show("hangs that were made", part.rows, part.notes, as_json=options.json)
    if "real" in wanted:
        part = real()
        common.show("hangs of real jobs", part.rows, part.notes, as_json=options.json)


def made(seeds: Sequence[int]) -> common.Part:
    """Return how often the guilty are named, per kind of fault."""
    rows = []
    with common.progress() as progress:
        for name, fault, has_timing in KINDS:
            for count in (1, 2):
                task = progress.track(seeds, description=f"{name}, {count}")
                rows.append({"fault": name, "ranks": count, **_score(task, fault, count, has_timing)})
    notes = [
        "exact: the guilty and nobody else. narrowed: within a set that says it is unsure. part: one of two.",
        "wrong: an innocent blamed alone, or with a confidence above 0.8.",
        "hidden: jobs in which a rank that stopped would stand at the same place without its own fault,",
        "because of the other's; it need not be named. both: named all the same.",
        "without timing, a device that is stuck before a collective records the same as its peers in it.",
    ]
    return common.Part(rows, notes)


def _score(seeds: Any, fault: Fault, count: int, has_timing: bool | None) -> Row:
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        case = make_case(seed, fault, count=count, has_timing=has_timing)
        hang = diagnose_hang(case.dumps)
        outcomes[judge(hang, case.guilty, case.hidden)] += 1
        outcomes["hidden"] += bool(case.hidden)
        outcomes["both"] += judge(hang, case.guilty) == "exact" and bool(case.hidden)
    return {name: outcomes[name] for name in (*get_args(Outcome), "hidden", "both")}


def real() -> common.Part:
    """Return who is named in real dumps."""
    folder = os.environ.get("HOLDFAST_DATA")
    if not folder:
        return common.Part([{"folder": "none"}], ["set HOLDFAST_DATA to the folder of the data"])
    rows = [_real_row(each) for each in sorted((Path(folder) / "flight_recorder").iterdir()) if each.is_dir()]
    return common.Part(
        rows, ["one left out: outcomes without the dump of each rank in turn; that rank need not be named"]
    )


def _real_row(folder: Path) -> Row:
    guilty = injected(folder)
    dumps = read_dumps([folder])
    hang = diagnose_hang(dumps)
    row: Row = {"folder": folder.name, "injected": guilty, "whole": judge(hang, guilty)}
    return row | {"one left out": dict(Counter(left_out(dumps, each.rank, guilty) for each in dumps))}


def injected(folder: Path) -> list[int]:
    """Return the ranks that the log of a real folder says were broken."""
    text = (folder / "fault_injection.log").read_text(encoding="utf-8")
    line = re.search(r"Fault ranks: \[(.*)\]", text)
    assert line, f"{folder} does not say which ranks were broken"
    return [int(word) for word in line[1].split(",")]


def left_out(dumps: Sequence[Dump], rank: int, guilty: Sequence[int]) -> Outcome:
    """Return how good the answer is without the dump of one rank, which then need not be named."""
    hang = diagnose_hang([each for each in dumps if each.rank != rank])
    return judge(hang, guilty, hidden=[rank])


if __name__ == "__main__":
    main()
