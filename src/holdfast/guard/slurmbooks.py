"""Copies what a Slurm cluster has in its books: attempts of jobs, events on nodes, whom jobs do not want.

The commands' own output is kept word by word in one folder, so that it can be read again, mailed, or looked
at by hand. Its times are UTC, whatever the cluster's clocks show, since logs have to be held against
them. Nothing is changed on the cluster.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from holdfast.errors import InputError, MissingError
from holdfast.job.files import replace_file

DELIMITER = "\x1f"
"""A job may have any other character in its name."""
ATTEMPT_FIELDS = (
    "JobID,JobName,User,Account,Partition,QOS,Priority,State,Submit,Eligible,Start,End,Elapsed,"
    "NNodes,AllocTRES,ReqTRES,NodeList,ExitCode"
)
EVENT_FIELDS = "Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User"
_TIME = "%Y-%m-%dT%H:%M:%S"
_TIMEOUT_S = 600.0


def collect(folder: Path, *, since: datetime, until: datetime) -> list[Path]:
    """Write the books of a time, which is given with its zone, into a folder and return the files."""
    since, until = since.astimezone(UTC), until.astimezone(UTC)
    span = [f"--starttime={since:{_TIME}}", f"--endtime={until:{_TIME}}"]
    books = {
        # Duplicates: a requeued job keeps its id. No steps. Never truncated to the span, which would change
        # how long jobs took.
        "sacct.txt": [
            "sacct", "--allusers", "--duplicates", "--allocations", "--parsable2", "--noconvert", *span,
            f"--delimiter={DELIMITER}", f"--format={ATTEMPT_FIELDS}",
        ],
        "events.txt": [
            "sacctmgr", "--parsable2", "list", "event", f"start={since:{_TIME}}", f"end={until:{_TIME}}",
            f"format={EVENT_FIELDS}",
        ],
        "exclusions.txt": ["squeue", "--states=all", "--array", "--format=%i|%x"],
    }  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error}") from error
    written = []
    for name, command in books.items():
        replace_file(folder / name, _output(command))
        written.append(folder / name)
    return written


def _output(command: Sequence[str]) -> bytes:
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise MissingError(f"{command[0]}: not found; run this where Slurm's commands are") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"{command[0]}: no answer in {_TIMEOUT_S:.0f} s; ask for less time") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it does not say why"]
        raise InputError(f"{command[0]}: failed with code {done.returncode}: {said[0]}")
    return done.stdout
