"""``holdfast profile``: asks a run that goes on for a profile of all its ranks, and shows what it says."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import msgspec
from rich.console import Console

from holdfast.cli.profiles import Wanted, check, show_case
from holdfast.cli.quantities import parse_count
from holdfast.errors import InputError
from holdfast.guard.jobprofile import Wish, read_profile, to_case, wish_path
from holdfast.guard.profiling import MOST_STEPS
from holdfast.job.files import replace_file
from holdfast.observe.eventlog import read_events
from holdfast.values import RunEnded

_LOOK_S = 0.2
_PATIENCE_S = 600.0


def profile(run_dir: Path, steps: str | None, wanted: Wanted) -> None:
    """Ask for a profile, wait until it is there, and show it."""
    check(wanted)
    count = None if steps is None else parse_count(steps, "--steps", least=1, most=MOST_STEPS)
    log = run_dir / "events.jsonl"
    if not log.is_file():
        raise InputError(f"{run_dir}: no events.jsonl in it, expected the run directory of a job that runs")
    _check_alive(run_dir, log)
    wish = Wish(id=secrets.token_hex(4), steps=count)
    try:
        replace_file(wish_path(run_dir), msgspec.json.encode(wish))
    except OSError as error:
        raise InputError(f"{run_dir}: cannot be written: {error.strerror}") from error
    path = run_dir / "profiles" / wish.id / "job.json"
    console = Console(stderr=True)
    with console.status("profiling: waiting for all ranks"):
        _wait(path, run_dir, log)
    show_case(to_case(read_profile(path), path.parent), wanted)


def _wait(path: Path, run_dir: Path, log: Path) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    looks = 0
    while not path.is_file():
        if time.monotonic() > until_s:
            raise InputError(f"{run_dir}: no profile came within {_PATIENCE_S:.0f} s, is its guard alive?")
        looks += 1
        if looks % 25 == 0:
            _check_alive(run_dir, log)
        time.sleep(_LOOK_S)


def _check_alive(run_dir: Path, log: Path) -> None:
    last = next((record.event for record in reversed(read_events(log).records)), None)
    if isinstance(last, RunEnded):
        raise InputError(f"{run_dir}: the run has ended, expected one that goes on")
