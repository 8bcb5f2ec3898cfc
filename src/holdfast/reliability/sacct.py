"""The output of ``sacct -P`` into the table of attempts.

Fields may come in any order and with any delimiter; the header names them. Slurm writes local times.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import polars as pl

from holdfast.errors import InputError
from holdfast.reliability.attempts import convert, finish, without_steps
from holdfast.reliability.cells import check_zone
from holdfast.reliability.opening import opened
from holdfast.reliability.rawtables import open_table
from holdfast.reliability.tables import Reading
from holdfast.reliability.told import Apply, Frame, Tally

CALL = (
    "sacct -a -D -X -P --noconvert --format=JobID,JobName,User,Account,Partition,QOS,Priority,State,Submit,"
    "Eligible,Start,End,Elapsed,NNodes,AllocTRES,ReqTRES,NodeList"
)
"""How to ask for all that is understood; -D, because a requeued job keeps its id."""
FIELDS = {
    "job": ("jobid", "jobidraw"),
    "name": ("jobname",),
    "user": ("user", "uid"),
    "account": ("account",),
    "partition": ("partition",),
    "qos": ("qos",),
    "priority": ("priority",),
    "state": ("state",),
    "submit": ("submit",),
    "eligible": ("eligible",),
    "start": ("start",),
    "end": ("end",),
    "elapsed": ("elapsed", "elapsedraw"),
    "nodes": ("allocnodes", "nnodes"),
    "nodes_asked": ("nnodes", "reqnodes"),
    "tres": ("alloctres", "tres-alloc"),
    "tres_asked": ("reqtres",),
    "gres": ("allocgres",),
    "gres_asked": ("reqgres",),
    "node_list": ("nodelist",),
    "exclude": ("excnodes", "exc_nodes"),
    "preemptor": ("preemptor",),
    "cluster": ("cluster",),
    "restarts": ("restarts", "restartcnt"),
}
"""What Slurm calls our columns, in small letters; the first that is there is taken."""


def read_sacct(path: Path, *, timezone: str = "UTC", apply: Apply = map) -> Reading:
    """Read a file that sacct wrote; ``timezone`` is where its cluster's clocks are set."""
    with opened(path) as stream:
        return parse_sacct(stream, str(path), timezone=timezone, apply=apply)


def parse_sacct(stream: BinaryIO, place: str, *, timezone: str = "UTC", apply: Apply = map) -> Reading:
    """Read what sacct wrote; raise InputError if there is no header that names a job."""
    zone = check_zone(timezone)
    table = open_table(stream, place, expected=f"a header, as of: {CALL}")
    columns = choose(table.names, FIELDS)
    if "job" not in columns:
        raise InputError(f"{place}, row 1: no column JobID, expected the header and rows of: {CALL}")
    tally = Tally(place)

    def work(frame: Frame) -> tuple[pl.DataFrame, Tally]:
        part = Tally(place)
        return convert(without_steps(frame(part), part), zone, part, is_slurm=True), part

    pieces = []
    for piece, part in apply(work, table.frames(columns)):
        pieces.append(piece)
        tally.add(part)
    return tally.reading(finish(pieces, tally))


def choose(names: Sequence[str], fields: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Return which of a file's columns to take for ours."""
    found = {ours: next((name for name in theirs if name in names), None) for ours, theirs in fields.items()}
    return {ours: name for ours, name in found.items() if name is not None}
