"""What happened to nodes, from tables that people keep: states, health checks, tickets, exclude lists.

States come from ``sacctmgr list event -P`` or from a history of ``sinfo -N``; checks in GCM's columns, with
Nagios' exit codes; tickets as ``node,opened,closed,id,text``; exclude lists from ``squeue -o '%i|%x'``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import polars as pl

from holdfast.errors import InputError
from holdfast.reliability.cells import NOTHING, check_zone
from holdfast.reliability.events import convert, finish
from holdfast.reliability.nodelist import expand
from holdfast.reliability.opening import opened
from holdfast.reliability.rawtables import open_table
from holdfast.reliability.sacct import choose
from holdfast.reliability.tables import Columns, Reading
from holdfast.reliability.told import Tally
from holdfast.reliability.words import node_state_of

_RESULTS = {"0": "ok", "1": "warning", "2": "critical", "3": "unknown"}
_RESULT_WORDS = {
    "ok": "ok",
    "warn": "warning",
    "warning": "warning",
    "critical": "critical",
    "unknown": "unknown",
}
_NODE = ("nodename", "node", "nodelist", "hostname", "host")
_START = ("timestart", "start", "timestamp", "at", "time", "start_time")


class Kind(NamedTuple):
    """A table of one kind of events."""

    kind: str
    fields: dict[str, tuple[str, ...]]
    """What others call our columns."""
    needed: tuple[str, ...]
    """Without these it is another table."""
    change: Callable[[pl.DataFrame, Tally], pl.DataFrame]
    needs_time: bool = True


def _set_state(raw: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Read the states; rows without a node are about a whole cluster, and left out."""
    kept = raw.filter(pl.col("node").fill_null("").str.strip_chars() != "")
    tally.left_out += raw.height - kept.height
    return _map(kept, "name", node_state_of)


def _set_result(raw: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Read exit codes; a word that is none stays, so that it is told. Job 0 is nobody's."""
    bare = pl.col("severity").str.strip_chars().str.to_lowercase().str.strip_suffix(".0").fill_null("")
    no_job = (
        pl.when(pl.col("job").is_in(["0", ""]).not_()).then(pl.col("job")) if "job" in raw.columns else None
    )
    table = raw if no_job is None else raw.with_columns(no_job.alias("job"))
    return table.with_columns(bare.replace({**_RESULTS, **_RESULT_WORDS}).alias("severity"))


def _keep(raw: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    return raw


def _check_lists(raw: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Tell the rows whose list of nodes is none; jobs that exclude nobody are left out."""
    texts = raw["node"].unique(maintain_order=True).drop_nulls().to_list()
    names = {text: _expand(text) for text in texts}
    bad = {text: why for text, why in names.items() if isinstance(why, str)}
    is_bad = pl.col("node").is_in(list(bad)).fill_null(False)
    tally.tell_all(raw.filter(is_bad), lambda row: f"node list {bad[row['node']]}")
    kept = raw.filter(
        pl.col("node").is_in([text for text, found in names.items() if found and text not in bad])
    )
    tally.left_out += raw.filter(is_bad.not_()).height - kept.height
    return kept


def _spread(events: pl.DataFrame) -> pl.DataFrame:
    """Return one row per node of each list."""
    texts = events["node"].unique(maintain_order=True).to_list()
    schema: Columns = {"node": pl.String, "_names": pl.List(pl.String)}
    names = pl.DataFrame({"node": texts, "_names": [expand(text) for text in texts]}, schema=schema)
    joined = events.join(names, on="node", how="left", maintain_order="left").explode("_names")
    return joined.with_columns(pl.col("_names").alias("node")).drop("_names")


def _expand(text: str) -> list[str] | str:
    """Return the names of a list, or why it is none."""
    try:
        return expand(text)
    except ValueError as error:
        return str(error)


STATE = Kind(
    "state",
    {"node": _NODE, "at": _START, "until": ("timeend", "end"), "name": ("state",), "text": ("reason",)},
    ("node", "at", "name"),
    _set_state,
)
CHECK = Kind(
    "check",
    {
        "node": ("node", "hostname", "host"),
        "at": ("start_time", "time", "timestamp", "at"),
        "until": ("end_time",),
        "name": ("health_check", "check", "check_name"),
        "severity": ("result", "exit_code", "status"),
        "job": ("job_id", "jobid", "job"),
        "text": ("_msg", "msg", "message", "text"),
    },
    ("node", "name", "severity", "at"),
    _set_result,
)
TICKET = Kind(
    "ticket",
    {
        "node": ("node", "nodename", "hostname", "host"),
        "at": ("opened", "opened_at", "created"),
        "until": ("closed", "closed_at", "resolved"),
        "name": ("id", "ticket", "ticket_id", "key"),
        "text": ("text", "summary", "title", "description"),
    },
    ("node", "at"),
    _keep,
)
EXCLUSION = Kind(
    "exclusion",
    {
        "node": ("exclude", "excnodes", "exc_nodes", "excludes", "excluded"),
        "job": ("job", "jobid", "job_id", "jobarrayid"),
        "at": ("at", "time", "submit", "submit_time", "submittime", "start", "start_time", "starttime"),
    },
    ("node", "job"),
    _check_lists,
    needs_time=False,
)
KINDS = (CHECK, TICKET, STATE, EXCLUSION)


def find_kind(names: Sequence[str]) -> Kind | None:
    """Return which kind of events a table with these columns holds, or None."""
    for kind in KINDS:
        if all(name in choose(names, kind.fields) for name in kind.needed):
            return kind
    return None


def read_node_events(path: Path, *, timezone: str = "UTC", kind: Kind | None = None) -> Reading:
    """Read a table of events on nodes: CSV, ``sacctmgr -P``, JSON lines or Parquet."""
    with opened(path) as stream:
        return parse_node_events(stream, str(path), timezone=timezone, kind=kind)


def parse_node_events(
    stream: BinaryIO, place: str, *, timezone: str = "UTC", kind: Kind | None = None
) -> Reading:
    """Read a table of events; raise InputError if its columns are not those of a kind of event."""
    zone = check_zone(timezone)
    table = open_table(stream, place)
    kind = kind or find_kind(table.names)
    columns = choose(table.names, kind.fields) if kind else {}
    if kind is None or not all(name in columns for name in kind.needed):
        expected = "; ".join(f"{one.kind}: {_needs(one)}" for one in ([kind] if kind else KINDS))
        raise InputError(f"{place}, row 1: columns {', '.join(table.names[:12])}, expected {expected}")
    tally = Tally(place)
    pieces = [
        convert(kind.change(frame(tally), tally), kind.kind, zone, tally, needs_time=kind.needs_time)
        for frame in table.frames(columns)
    ]
    events = finish(pieces)
    return tally.reading(_spread(events) if kind is EXCLUSION else events)


def _needs(kind: Kind) -> str:
    return ", ".join(kind.fields[name][0] for name in kind.needed)


def _map(raw: pl.DataFrame, name: str, change: Callable[[str], tuple[str, str]]) -> pl.DataFrame:
    """Replace a column of states by our words for them, and add their severity."""
    words = [word for word in raw[name].unique(maintain_order=True).to_list() if word is not None]
    read = [change(word) if word.strip() not in NOTHING else (None, None) for word in words]
    table = pl.DataFrame(
        {name: words, "_name": [one for one, _ in read], "severity": [one for _, one in read]},
        schema={name: pl.String, "_name": pl.String, "severity": pl.String},
    )
    joined = raw.join(table, on=name, how="left", maintain_order="left")
    return joined.with_columns(pl.col("_name").alias(name)).drop("_name")
