"""Lines of a kernel's log about GPUs into the table of events: ``NVRM: Xid (PCI:0000:3b:00): 79, …``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, NamedTuple

import polars as pl

from holdfast.errors import InputError
from holdfast.reliability.cells import at_time, check_zone
from holdfast.reliability.opening import opened
from holdfast.reliability.tables import EVENTS, Reading
from holdfast.reliability.taxonomy import HARMLESS_XIDS
from holdfast.reliability.told import Tally, shown

_XID = re.compile(r"NVRM: Xid \([^)]+\): ([0-9]{1,6})(.*)")
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)\s+(?:([^\s:\[\]]+)\s+)?"
)
_SYSLOG = re.compile(r"(?:<\d+>)?([A-Z][a-z]{2}) +(\d{1,2}) (\d\d:\d\d:\d\d)(?:\.\d+)? ([^\s:\[\]]+) ")
_DMESG = re.compile(r"\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})\]")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_IS_LOG = re.compile(
    rf"(?:{_ISO.pattern}(?:kernel|\S+\[?\d*\]?):)|{_SYSLOG.pattern}|{_DMESG.pattern}|\[ *\d+\.\d+\]"
)


class Origin(NamedTuple):
    """What a log does not say about itself."""

    zone: str
    written: datetime
    """Not before its last line: a line without a year is of the year that ends then."""
    node: str | None
    """Of lines that name none, as those of dmesg."""


def is_log(line: str) -> bool:
    """Say whether a line is one of a kernel's log."""
    return _IS_LOG.match(line) is not None or _XID.search(line) is not None


def read_kernel_log(path: Path, *, timezone: str = "UTC", node: str | None = None) -> Reading:
    """Read a log in the form of syslog, journalctl or ``dmesg -T``; other lines are no rows."""
    with opened(path) as stream:
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        return parse_kernel_log(stream, str(path), Origin(check_zone(timezone), written, node))


def parse_kernel_log(stream: BinaryIO, place: str, origin: Origin) -> Reading:
    """Read a log; raise InputError if it is not text."""
    tally = Tally(place)
    found = []
    for number, line in enumerate(stream, start=1):
        if number == 1 and b"\0" in line:
            raise InputError(f"{place}: is not text, expected a kernel's log")
        if b"NVRM: Xid" in line:
            tally.rows += 1
            try:
                found.append(_event(line.decode(errors="replace").strip(), origin))
            except ValueError as error:
                tally.tell(number, str(error))
    return tally.reading(pl.DataFrame(found, schema=dict(EVENTS), orient="row"))


def _event(line: str, origin: Origin) -> tuple[object, ...]:
    match = _XID.search(line)
    if match is None:
        raise ValueError(f"is {shown(line)}, expected NVRM: Xid (PCI:…): and a number")
    at, node = _time_and_node(line, origin)
    if node is None:
        raise ValueError("names no node, and none is given for the file")
    code = int(match[1])
    severity = "warning" if code in HARMLESS_XIDS else "critical"
    return node, at, None, "xid", f"xid {code}", severity, None, match[0].removeprefix("NVRM: ")


def _time_and_node(line: str, origin: Origin) -> tuple[datetime, str | None]:
    if match := _ISO.match(line):
        at, node = at_time(match[1].replace(",", "."), origin.zone), match[2]
    elif match := _SYSLOG.match(line):
        at, node = _latest(match[1], match[2], match[3], origin), match[4]
    elif match := _DMESG.match(line):
        at, node = _date(match[4], match[1], match[2], match[3], origin.zone), None
    else:
        at = None
    if at is None:
        raise ValueError(f"begins with {shown(line)}, expected a time (dmesg: -T)")
    return at, node if node not in (None, "kernel") else origin.node


def _latest(month: str, day: str, clock: str, origin: Origin) -> datetime | None:
    """Return the last such day before the log was written; a day of grace is for clocks and zones."""
    for year in (origin.written.year + 1, origin.written.year, origin.written.year - 1):
        at = _date(str(year), month, day, clock, origin.zone)
        if at is not None and at <= origin.written + timedelta(days=1):
            return at
    return None


def _date(year: str, month: str, day: str, clock: str, zone: str) -> datetime | None:
    if month not in _MONTHS:
        return None
    return at_time(f"{year.zfill(4)}-{_MONTHS.index(month) + 1:02}-{int(day):02}T{clock}", zone)
