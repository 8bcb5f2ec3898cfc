"""What observation costs: CPU time per call and per step of a rank, its memory, CPU time of the lookout.

CPU time of the training thread, with us and without in turn, the median of the differences of rounds;
neighbours on the machine matter little. Steps are those of two
ranks; the time that they wait for each other is no CPU time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import common

_HOME = Path(__file__).parent / "overheads"
CALL_US, STEP_US, STEP_MS, SHARE, LOOKOUT_S = 2.0, 200.0, 100.0, 0.2, 1.0
"""What a call and a step may cost, of how long a step and what share; the lookout."""


def main() -> None:
    """Measure each part in a process of its own and print a row for each figure."""
    options = common.parser(__doc__).parse_args()
    with common.progress() as bar:
        parts = ("calls", "loops", "controller")
        found = {part: measure(part) for part in bar.track(parts, description="parts")}
    rows = [*_calls(found["calls"]), *_steps(found["loops"]), *_memory(found["calls"])]
    rows += _lookout(found["controller"])
    notes = [
        "differences of CPU time, medians of interleaved rounds; steps without us: hooks that pass by",
        "at best: the cheapest round with us less the cheapest without, as on a machine with no neighbours",
    ]
    errors = found["calls"]["errors"] + found["loops"]["errors"]
    notes.append(f"{errors} failures of our own")
    common.show("what observation costs", rows, notes, as_json=options.json)


def measure(part: str) -> Any:
    """Run one part and return what it says."""
    store = Path(tempfile.mkdtemp()) / "store"
    ranks = (0, 1) if part == "loops" else (0,)
    command = [sys.executable, str(_HOME / f"{part}.py")]
    started = [subprocess.Popen([*command, str(rank), str(store)], stdout=subprocess.PIPE) for rank in ranks]
    said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(ranks)
    return json.loads(said[0])


def _row(
    what: str, more: float, unit: str, aim: float | None = None, beside: Any = ("", "")
) -> dict[str, Any]:
    return {
        "what": what,
        "without us": beside[0],
        "more with us": more,
        "at best": beside[1],
        "unit": unit,
        "aim": "" if aim is None else f"at most {aim:g}",
        "is met": "" if aim is None else more <= aim,
    }


def _calls(found: Any) -> list[dict[str, Any]]:
    rows = []
    for name, cost in found["costs"].items():
        # A batch is got and an update made once a step or so: what they cost is in the steps below.
        aim = CALL_US if name in ("a wrapper alone", "all_reduce") else None
        rows.append(_row(name, cost["more_us"], "µs", aim, _beside(cost, "plain_us")))
    return rows


def _steps(found: Any) -> list[dict[str, Any]]:
    rows = []
    for name, cost in found["costs"].items():
        told = f"a step: {name}, {cost['calls']:.0f} calls"
        rows.append(_row(told, cost["more_us"], "µs", STEP_US, _beside(cost, "step_us")))
        share = cost["more_us"] / STEP_MS / 10
        rows.append(_row(f"share of a step of {STEP_MS:.0f} ms: {name}", share, "%", SHARE))
    return rows


def _beside(cost: Any, without: str) -> tuple[str, str]:
    return f"{cost[without]:.2f}", f"{cost['best_us']:.2f}"


def _memory(found: Any) -> list[dict[str, Any]]:
    sizes = {**found["bytes"], "in all": sum(found["bytes"].values())}
    return [_row(f"memory per rank: {name}", size / 1024, "KB") for name, size in sizes.items()]


def _lookout(found: Any) -> list[dict[str, Any]]:
    name = "lookout over 10,000 ranks, CPU per step"
    return [
        _row(f"{name}: median", found["median_s"], "s", LOOKOUT_S),
        _row(f"{name}: worst", found["worst_s"], "s", LOOKOUT_S),
        _row("memory of that process", found["peak_mb"], "MB"),
    ]


if __name__ == "__main__":
    main()
