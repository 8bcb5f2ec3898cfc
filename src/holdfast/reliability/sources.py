"""The front door for files: which kind of record one is, found by looking at it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.errors import InputError
from holdfast.reliability.lanl import is_lanl, read_lanl
from holdfast.reliability.mapped import find_columns, read_mapped, read_philly
from holdfast.reliability.nodeevents import CHECK, EXCLUSION, TICKET, find_kind, read_node_events
from holdfast.reliability.opening import opened
from holdfast.reliability.ownlog import is_event_log, read_own_logs
from holdfast.reliability.rawtables import find_header, open_table
from holdfast.reliability.sacct import CALL, FIELDS, choose, read_sacct
from holdfast.reliability.sacctjson import read_sacct_json
from holdfast.reliability.tables import Reading
from holdfast.reliability.told import Apply
from holdfast.reliability.xids import is_log, read_kernel_log

Which = Literal["attempts", "events", "outages"]
Form = Literal[
    "sacct", "sacct json", "mapped", "philly", "own log", "node events", "kernel log", "failure records"
]
"""What a file can be."""
TABLES: Mapping[Form, Which] = {
    "sacct": "attempts",
    "sacct json": "attempts",
    "mapped": "attempts",
    "philly": "attempts",
    "own log": "attempts",
    "node events": "events",
    "kernel log": "events",
    "failure records": "outages",
}
_HEAD = 1 << 16


def read_any(
    path: Path,
    *,
    timezone: str = "UTC",
    columns: Mapping[str, str] | None = None,
    node: str | None = None,
    apply: Apply = map,
) -> tuple[Which, Reading]:
    """Read a file of any known kind; ``columns`` makes it a table of jobs, ``node`` is for logs of dmesg."""
    form: Form = "mapped" if columns else find_form(path)
    if form == "sacct":
        return TABLES[form], read_sacct(path, timezone=timezone, apply=apply)
    return TABLES[form], _read(path, form, timezone, columns, node)


def _read(path: Path, form: Form, zone: str, columns: Mapping[str, str] | None, node: str | None) -> Reading:
    match form:
        case "sacct":
            return read_sacct(path, timezone=zone)
        case "sacct json":
            return read_sacct_json(path)
        case "mapped":
            return read_mapped(path, columns, timezone=zone)
        case "philly":
            return read_philly(path, timezone=zone)
        case "own log":
            return read_own_logs(path)
        case "node events":
            return read_node_events(path, timezone=zone)
        case "kernel log":
            return read_kernel_log(path, timezone=zone, node=node)
        case "failure records":
            return read_lanl(path, timezone=zone)


def find_form(path: Path) -> Form:
    """Return what a file is; raise InputError, with what was expected, if it is nothing known."""
    if path.is_dir():
        return "own log"
    with opened(path) as stream:
        head = stream.read(_HEAD)
        if not head.strip():
            raise InputError(f"{path}: is empty, expected records of jobs, nodes or failures")
        form = None if head.startswith(b"PAR1") else _find_untabled(head)
        if form is not None:
            return form
        stream.seek(0)
        try:
            table = open_table(stream, str(path), expected=f"a header, as of: {CALL}")
        except InputError:
            if b"NVRM: Xid" in head:  # Not before: a health check's message may say so too.
                return "kernel log"
            raise
        return _find_by_names(table.names, path)


def _find_untabled(head: bytes) -> Form | None:
    """Return what has no header: JSON in one piece, event logs, kernel logs."""
    first = find_header(head).text
    if head.lstrip()[:1] == b"[" and not is_log(first.decode(errors="replace")):
        return "philly"
    if head.lstrip()[:1] == b"{":
        if is_event_log(first):
            return "own log"
        return "sacct json" if _is_document(first) else None
    return "kernel log" if is_log(first.decode(errors="replace")) else None


def _is_document(first: bytes) -> bool:
    """Say whether a line is not an object by itself, or one that holds all jobs."""
    try:
        return "jobs" in msgspec.json.decode(first.decode(errors="replace"), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return True


def _find_by_names(names: list[str], path: Path) -> Form:
    if is_lanl(names):
        return "failure records"
    kind = find_kind(names)
    if kind in (CHECK, TICKET) or (kind is EXCLUSION and "state" not in names):
        return "node events"
    found = choose(names, FIELDS)
    if "job" in found and ("state" in found or "start" in found):
        return "sacct"
    if find_columns(names):
        return "mapped"
    if kind is not None:
        return "node events"
    raise InputError(
        f"{path}, row 1: columns {', '.join(names[:12])} are those of no known record, expected those of "
        f"{CALL}; or give a map of columns"
    )
