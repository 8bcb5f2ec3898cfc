"""``holdfast reliability collect`` and ``check``: what a cluster has in its books, and how its nodes are."""

from __future__ import annotations

import os
import socket
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from holdfast.cli.quantities import parse_positive
from holdfast.errors import InputError
from holdfast.guard.healthchecks import Book, Check, Moment, keep_checking, read_checks, run_check, worst
from holdfast.guard.slurmbooks import collect


def collect_books(folder: Path, days: str, *, as_json: bool) -> None:
    """Ask Slurm for the last so many days and say where the answers are."""
    length = parse_positive(days, "--days", most=36_500)
    until = datetime.now(UTC)
    files = collect(folder, since=until - timedelta(days=length), until=until + timedelta(minutes=1))
    if as_json:
        told = {"files": [str(file) for file in files], "days": length}
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
        return
    for file in files:
        rows = max(0, file.read_bytes().count(b"\n") - 1)
        sys.stdout.write(f"{file}: {rows} rows\n")


def check_node(file: Path, out: Path, *, moment: str, is_once: bool) -> int:
    """Run the checks of a file that belong to a moment; return what the process should exit with."""
    if moment not in ("periodic", "prolog", "epilog"):
        raise InputError(f"--when is {moment!r}, expected periodic, prolog or epilog")
    chosen = [check for check in read_checks(file) if moment in check.when]
    if not chosen:
        raise InputError(f"{file}: no check with when = [{moment!r}]")
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    if moment == "periodic" and not is_once:
        keep_checking(chosen, Book(out, _complain), node=node)
        return 0
    return _check_once(chosen, Book(out, _complain), node=node, moment=msgspec.convert(moment, Moment))


def _check_once(checks: list[Check], book: Book, *, node: str, moment: Moment) -> int:
    job = os.environ.get("SLURM_JOB_ID")
    rows = [run_check(check, node=node, moment=moment, job=job) for check in checks]
    book.append(rows)
    for row in rows:
        sys.stdout.write(
            f"{('ok', 'warning', 'critical', 'unknown')[row.result]}: {row.health_check}: {row.msg}\n"
        )
    return worst(rows)


def _complain(why: str) -> None:
    sys.stderr.write(f"holdfast: {why}\n")
