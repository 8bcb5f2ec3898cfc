"""How faithful the lab's faults are: for every kind and mechanism, what was asked beside what was measured.

Each case is one run in which healthy steps and steps under the fault take turns, so that drift cancels. Rows
that are off by more than 25 % are flagged. ``--json`` prints one JSON object instead of the table.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from holdfast.faults import SECONDS_KINDS, Fault, FaultKind
from holdfast.lab.device import LABEL
from holdfast.lab.fork import Job, Lab, Result
from holdfast.lab.injectors import namespaces, quota
from holdfast.lab.recorder import StepRow

BLOCK = 10
"""Steps in a row with, and then without, the fault."""
TOLERANCE = 0.25
Quantity = Callable[[list[StepRow]], float]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One kind by one mechanism, at several severities."""

    kind: FaultKind
    via: str
    severities: list[float]
    job: Job
    quantity: Quantity
    is_absolute: bool = False
    """The quantity is the factor itself, and needs no healthy steps to be compared with."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    kind: str
    via: str
    asked: float
    measured: float
    unit: str
    quantity: str
    """What was measured: the name of the function below."""
    healthy: float
    """The quantity in healthy steps: seconds, or for ``inverse_share`` a factor."""
    is_off: bool


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How evenly emulated accelerators step."""

    workers: int
    step_ms: float
    step_cv: float
    """Standard deviation over mean of the whole step, messages included."""
    own_ms: float
    own_cv: float
    """The same of the time between messages, which is what the device sets."""


def _mean(values: Iterator[float]) -> float:
    return statistics.fmean(values)


def own_s(rows: list[StepRow]) -> float:
    """Return the mean time that the target needed for itself."""
    return _mean(row.own_s for row in rows)


def data_s(rows: list[StepRow]) -> float:
    """Return the mean time in the data loader."""
    return _mean(row.data_s for row in rows)


def link_s(rows: list[StepRow]) -> float:
    """Return the mean time in transfers with the peer."""
    return _mean(row.link_s[1] for row in rows)


def inverse_share(rows: list[StepRow]) -> float:
    """Return own time over CPU time: 2 when the training thread got half of its core.

    On an idle machine that is also the slowdown. On a shared one the healthy steps are slow already, while a
    quota and a busy neighbour set the share of the core that is left, whoever had the rest before.
    """
    return _mean(row.own_s for row in rows) / _mean(row.cpu_s for row in rows)


def cases() -> list[Case]:
    """Return all cases that this machine can run."""
    emulated = _job("dataparallel", "--device", "emulated", "--op-ms", "5")
    pinned = _job("dataparallel", "--pin", "--width", "128")
    network = _job("exchange", "--width", "32", "--layers", "1", nic_bytes_s=25e6)
    spaces = msgspec.structs.replace(network, in_namespaces=True)
    factors, seconds = [1.5, 2.0, 4.0], [0.02, 0.05, 0.1]
    return [
        _case("slow_device", "worker", factors, emulated, own_s),
        *([_case("cpu_quota", "cgroup", factors, pinned, own_s)] if quota.available()[0] else []),
        *([_case("cpu_quota", "cgroup", factors, pinned, inverse_share)] if quota.available()[0] else []),
        _case("cpu_quota", "sigstop", factors, pinned, own_s),
        _case("busy_neighbour", "process", [2.0, 3.0, 4.0], pinned, own_s),
        _case("busy_neighbour", "process", [2.0, 3.0, 4.0], pinned, inverse_share),
        _case("slow_nic", "pacing", factors, network, link_s),
        _case("slow_link", "pacing", factors, network, link_s),
        *([_case("slow_nic", "namespace", factors, spaces, link_s)] if namespaces.available()[0] else []),
        *([_case("slow_link", "namespace", factors, spaces, link_s)] if namespaces.available()[0] else []),
        _case("data_stall", "worker", seconds, emulated, own_s),
        _case("gc_storm", "worker", seconds, emulated, own_s),
        _case("copy_storm", "worker", seconds, emulated, own_s),
        _case("slow_storage", "worker", [2.0, 4.0, 8.0], emulated, data_s),
    ]


def _case(kind: FaultKind, via: str, severities: list[float], job: Job, quantity: Quantity) -> Case:
    is_absolute = quantity is inverse_share
    return Case(
        kind=kind, via=via, severities=severities, job=job, quantity=quantity, is_absolute=is_absolute
    )


def _job(name: str, *args: str, nic_bytes_s: float = 100e6) -> Job:
    return Job(module=f"holdfast.lab.jobs.{name}", ranks=2, args=list(args), nic_bytes_s=nic_bytes_s)


def measure(lab: Lab, case: Case, rounds: int) -> list[Row]:
    """Run a case and return a row per severity."""
    faults = [
        Fault(
            kind=case.kind,
            target=(0, 1) if case.kind == "slow_link" else 0,
            at_step=BLOCK * (2 * number + 1),
            for_steps=BLOCK,
            severity=severity,
            via=case.via,
        )
        for number, severity in enumerate(case.severities * rounds)
    ]
    steps = BLOCK * (2 * len(faults) + 1)
    job = msgspec.structs.replace(case.job, args=[*case.job.args, "--steps", str(steps)])
    rows = _rows_of(lab.run(job, faults, timeout_s=600))
    return [_row(case, severity, rows, faults) for severity in case.severities]


def _rows_of(result: Result) -> list[StepRow]:
    if any(result.exit_codes):
        raise SystemExit(f"a worker failed: {result.exit_codes}\n{''.join(result.logs)[-2000:]}")
    return result.rows[0]


def _row(case: Case, severity: float, rows: list[StepRow], faults: list[Fault]) -> Row:
    hurt: list[StepRow] = []
    calm: list[StepRow] = []
    for fault in faults:
        if fault.severity == severity:
            start, end = fault.at_step, fault.at_step + BLOCK
            hurt += rows[
                start + 1 : end
            ]  # Faults from outside come within the first step and go after the last.
            calm += rows[start - BLOCK + 2 : start] + rows[end + 2 : end + BLOCK]
    healthy, sick = case.quantity(calm), case.quantity(hurt)
    is_seconds = case.kind in SECONDS_KINDS
    measured = sick - healthy if is_seconds else sick if case.is_absolute else sick / healthy
    return Row(
        kind=case.kind,
        via=case.via,
        asked=severity,
        measured=measured,
        unit="s" if is_seconds else "x",
        quantity=case.quantity.__name__,
        healthy=healthy,
        is_off=abs(measured / severity - 1) > TOLERANCE,
    )


def measure_hang(lab: Lab) -> Row:
    """Return how long a hang of 50 steps held its target, in steps."""
    args = ["--device", "emulated", "--op-ms", "5", "--steps", "40"]
    job = Job(module="holdfast.lab.jobs.dataparallel", ranks=2, args=args)
    rows = _rows_of(lab.run(job, [Fault(kind="hang", target=0, at_step=20, for_steps=50)]))
    median_s = statistics.median(row.duration_s for row in rows[1:])
    measured = (max(row.duration_s for row in rows) - median_s) / median_s
    return Row(
        kind="hang",
        via="sigstop",
        asked=50,
        measured=measured,
        unit="steps",
        quantity="longest_step",
        healthy=median_s,
        is_off=abs(measured / 50 - 1) > TOLERANCE,
    )


def measure_kill(lab: Lab) -> Row:
    """Return how many steps a worker finished that was to be killed in step 20."""
    args = ["--device", "emulated", "--op-ms", "5", "--steps", "40"]
    job = Job(module="holdfast.lab.jobs.dataparallel", ranks=2, args=args)
    rows = lab.run(job, [Fault(kind="kill", target=0, at_step=20)]).rows[0]
    return Row(
        kind="kill",
        via="sigkill",
        asked=20,
        measured=len(rows),
        unit="steps",
        quantity="steps_finished",
        healthy=statistics.median(row.duration_s for row in rows[1:]),
        is_off=abs(len(rows) / 20 - 1) > TOLERANCE,
    )


def measure_spread(lab: Lab, workers: int) -> Spread:
    """Return how evenly so many emulated accelerators step on this machine."""
    args = ["--device", "emulated", "--op-ms", "20", "--width", "32", "--steps", "45"]
    result = lab.run(Job(module="holdfast.lab.jobs.dataparallel", ranks=workers, args=args), timeout_s=120)
    rows = _rows_of(result)[5:]
    steps, own = [row.duration_s for row in rows], [row.own_s for row in rows]
    return Spread(
        workers=workers,
        step_ms=1000 * statistics.fmean(steps),
        step_cv=statistics.stdev(steps) / statistics.fmean(steps),
        own_ms=1000 * statistics.fmean(own),
        own_cv=statistics.stdev(own) / statistics.fmean(own),
    )


def machine() -> str:
    """Return the hardware, the versions and the date in a line."""
    import torch

    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    cpu = names[0].partition(":")[2].strip() if names else platform.processor()
    load = f"load before {os.getloadavg()[0]:.1f}"
    versions = f"Linux {platform.release()}, torch {torch.__version__}"
    return f"{cpu}, {os.cpu_count()} cores, {load}, {versions}, {datetime.now(UTC):%Y-%m-%d}"


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=2, help="times that each severity is met")
    parser.add_argument("--only", help="one kind")
    options = parser.parse_args()
    where = machine()
    chosen = [case for case in cases() if options.only in (None, case.kind)]
    counts = (2, 8, 12) if options.only is None else ()
    rows: list[Row] = []
    with Lab() as lab, Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        for case in progress.track(chosen, description="kinds"):
            rows += measure(lab, case, options.rounds)
        if options.only in (None, "hang"):
            rows.append(measure_hang(lab))
        if options.only in (None, "kill"):
            rows.append(measure_kill(lab))
        spreads = [measure_spread(lab, count) for count in progress.track(counts, description="workers")]
    if options.json:
        document = {"machine": where, "rows": rows, LABEL.replace(" ", "_"): spreads}
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    else:
        show(where, rows, spreads)


def show(where: str, rows: list[Row], spreads: list[Spread]) -> None:
    """Print the tables."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(where)
    table = Table(title="asked and measured; devices, NICs and storage are emulated")
    for name in ("kind", "via", "of", "asked", "measured", "off by", "healthy", ""):
        table.add_column(name, justify="left" if name in ("kind", "via", "of", "") else "right")
    for row in rows:
        off = f"{100 * (row.measured / row.asked - 1):+.0f} %"
        healthy = (
            f"{row.healthy:.2f} x" if row.quantity == "inverse_share" else f"{1000 * row.healthy:.1f} ms"
        )
        asked, measured = f"{row.asked:g} {row.unit}", f"{row.measured:.3g} {row.unit}"
        mark = "OFF" if row.is_off else ""
        table.add_row(row.kind, row.via, row.quantity, asked, measured, off, healthy, mark)
    console.print(table)
    console.print(
        "inverse_share: 1 / share of its core that the target got; own_s, data_s, link_s: its time."
    )
    for spread in spreads:
        own = f"own time {spread.own_ms:.1f} ms (CV {100 * spread.own_cv:.1f} %, asked 120)"
        step = f"whole step {spread.step_ms:.1f} ms (CV {100 * spread.step_cv:.1f} %)"
        console.print(f"{LABEL}, {spread.workers} workers: {own}, {step}")


if __name__ == "__main__":
    main()
