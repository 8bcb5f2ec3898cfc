"""What the benchmarks share: how a result is printed, and how processes of a run are found."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psutil
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

MARK = "HOLDFAST_BENCHMARK_MARK"


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    made.add_argument("--seed", type=int, default=0)
    return made


def hardware() -> dict[str, str]:
    """Say what the figures were measured on, and when."""
    return {
        "machine": f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GB, no accelerator",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def show(title: str, rows: Sequence[dict[str, Any]], notes: Iterable[str], *, as_json: bool) -> None:
    """Print the rows as a table, or all of it as JSON."""
    if as_json:
        print(json.dumps({"title": title, "rows": rows, "notes": list(notes), "hardware": hardware()}))
        return
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table(title=title, box=None, pad_edge=False, title_justify="left")
    for name in rows[0]:
        table.add_column(name.replace("_", " "))
    for row in rows:
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    console.print(table)
    for note in notes:
        console.print(note, highlight=False)
    console.print(", ".join(f"{key} {value}" for key, value in hardware().items()), style="dim")


def progress() -> Progress:
    """Return a progress bar that is drawn on a terminal only."""
    console = Console(stderr=True)
    return Progress(console=console, disable=not console.is_terminal)


@dataclass(frozen=True)
class Part:
    """A table, what is to be said below it, and whether everything in it is as it should be."""

    rows: list[dict[str, Any]]
    notes: list[str]
    is_good: bool = True


def run_parts(parts: Mapping[str, Callable[[argparse.Namespace], Part]], options: argparse.Namespace) -> None:
    """Print the parts that were asked for, all if none was; exit with 1 if not all is as it should be."""
    is_good = True
    for name in options.only or parts:
        part = parts[name](options)
        show(name, part.rows, part.notes, as_json=options.json)
        is_good &= part.is_good
    raise SystemExit(0 if is_good else 1)


def processes_of(mark: str) -> list[psutil.Process]:
    """Return the living processes of a run, by the variable that they all inherit."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def end_all(mark: str, timeout_s: float = 5.0) -> None:
    """Kill what is left of a run."""
    deadline_s = time.monotonic() + timeout_s
    while (left := processes_of(mark)) and time.monotonic() < deadline_s:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        time.sleep(0.05)
