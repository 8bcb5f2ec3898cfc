"""``holdfast inject``: faults for a job of its own, or for one that is running."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import psutil
from rich.console import Console
from rich.table import Table

from holdfast.errors import InputError
from holdfast.faults import Fault
from holdfast.guard.eventlog import EventLog
from holdfast.guard.home import Home
from holdfast.guard.rundir import RunInfo
from holdfast.guard.say import Say
from holdfast.incidents.words import name_fault
from holdfast.lab.control import LAB_ENV
from holdfast.lab.director import Director, Scene
from holdfast.lab.faults import check_faults, parse_fault, read_faults
from holdfast.lab.kinds import REFERENCE, WORKER
from holdfast.lab.mechanisms import choose
from holdfast.lab.targets import RingTargets
from holdfast.observe.eventlog import read_run
from holdfast.values import AttemptStarted, FaultInjected, FaultRelieved

_RUN_INFO = msgspec.json.Decoder(RunInfo)
LAB_FOLDER = "lab"
"""Below the run directory: where workers of the lab find their faults and leave their records."""


def gather(words: Sequence[str], file: Path | None) -> list[Fault]:
    """Return all faults asked for, or raise when there is none."""
    faults = [parse_fault(text) for text in words] + (read_faults(file) if file is not None else [])
    if not faults:
        raise InputError(
            "no fault given: begin with --fault 'kill rank=1 at=20' or --faults FILE (--kinds lists them)"
        )
    return faults


def live_run(arguments: Sequence[str]) -> Path | None:
    """Return the run directory, if that is what the arguments are."""
    if len(arguments) == 1 and (Path(arguments[0]) / "run.json").exists():
        return Path(arguments[0])
    if (
        len(arguments) == 1
        and Path(arguments[0]).is_dir()
        and not (Path(arguments[0]) / "__main__.py").exists()
    ):
        raise InputError(f"{arguments[0]}: no run.json in it, expected a run directory or a script")
    return None


def inject_new(arguments: Sequence[str], faults: Sequence[Fault]) -> int:
    """Start a job as ``holdfast run`` would, under the given faults, and return its exit code."""
    from holdfast.guard.launch import Extra, launch

    extra = Extra(
        worker_module="holdfast.lab.worker",
        check=lambda args: _check(faults, args.config.nproc_per_node * args.config.max_nodes),
        worker_env=lambda home: {LAB_ENV: str(home.run_dir.path / LAB_FOLDER)},
        on_start=lambda home: _direct(home, faults),
    )
    return launch(arguments, extra)


def inject_live(run_dir: Path, faults: Sequence[Fault]) -> None:
    """Put a running job under the given faults, and wait until they are over or the job is."""
    info = _read_info(run_dir)
    records = [r for r in read_run(run_dir).records if isinstance(r.event, AttemptStarted)]
    if not records or not psutil.pid_exists(info.launcher_pid):
        raise InputError(f"{run_dir}: the run is over, expected one that is running")
    assert isinstance(records[-1].event, AttemptStarted)
    world_size = records[-1].event.world_size
    check_faults(faults, world_size=world_size)
    lab = run_dir / LAB_FOLDER
    _check_reach(faults, lab)
    log = EventLog(run_dir, node=0, host=info.host, say=Say())
    log.attempt = records[-1].stamp.attempt
    scene = Scene(folder=lab, world_size=world_size)
    console = Console()

    def tell(event: FaultInjected | FaultRelieved) -> None:
        log.append(event)
        console.print(_told(event), highlight=False)

    with Director(faults, RingTargets(Path(info.rings)), scene, on_event=tell) as director:
        while not director.is_done and psutil.pid_exists(info.launcher_pid):
            time.sleep(0.05)


def print_kinds() -> None:
    """Print the table of kinds."""
    table = Table(box=None, pad_edge=False)
    for title in ("kind", "severity", "mechanisms", "what it does"):
        table.add_column(title)
    for kind, entry in REFERENCE.items():
        table.add_row(kind, entry.severity, ", ".join(entry.mechanisms), entry.what)
    Console().print(table)


def _direct(home: Home, faults: Sequence[Fault]) -> Callable[[], None]:
    """Begin to direct the faults of a launch; return what ends it."""
    launch = home.plan.launch
    lab = home.run_dir.path / LAB_FOLDER
    try:
        lab.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{lab}: {error.strerror}; faults need a folder that can be written") from error
    world_size = launch["nproc_per_node"] * launch["max_nodes"]
    scene = Scene(folder=lab, world_size=world_size)

    def tell(event: FaultInjected | FaultRelieved) -> None:
        home.log.append(event)
        home.say.line(_told(event))

    director = Director(faults, RingTargets(home.rings), scene, on_event=tell)
    director.start()

    def end() -> None:
        try:
            director.stop()
        except Exception as error:  # The job is none the worse for it.
            home.say.line(f"a fault could not be injected: {error}")

    return end


def _told(event: FaultInjected | FaultRelieved) -> str:
    what = "injected" if isinstance(event, FaultInjected) else "relieved"
    return f"{name_fault(event.fault)} {what} at step {event.step}"


def _check(faults: Sequence[Fault], world_size: int) -> None:
    check_faults(faults, world_size=world_size)
    for fault in faults:
        choose(fault, has_network=False)


def _check_reach(faults: Sequence[Fault], lab: Path) -> None:
    for fault in faults:
        if choose(fault, has_network=False) in (WORKER, "pacing") and not lab.is_dir():
            raise InputError(
                f"{fault.kind} acts inside the worker, and this job was started by holdfast run: "
                "start it by holdfast inject, or use kill, hang, cpu_quota or busy_neighbour"
            )


def _read_info(run_dir: Path) -> RunInfo:
    file = run_dir / "run.json"
    try:
        return _RUN_INFO.decode(file.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"{file}: {error}") from error
