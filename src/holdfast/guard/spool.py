"""What of a run directory has still to be sent: the directory is the spool, a small file says how far we got.

A server that is away for an hour loses nothing, and a sender that is killed goes on where its last receipt
was.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from holdfast.guard.eventlog import log_name
from holdfast.guard.rundir import RunInfo
from holdfast.job.files import replace_file
from holdfast.observe.tail import Line, Place, read_on
from holdfast.shipment import MOST_BYTES, MOST_EVENTS, MOST_SUMMARIES, Run, Shipment
from holdfast.telemetry import Summary

_RUN_INFO = msgspec.json.Decoder(RunInfo)
_LONGEST = MOST_BYTES - (1 << 18)
"""Of a line: what is around it has to fit in as well."""
_MOST_WORDS, _LONGEST_WORD = 200, 400
"""Of a command."""
_SUMMARY = msgspec.json.Decoder(Summary)


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """Content of ``.sent.nodeN.json``: what a server has acknowledged."""

    server: str
    events: Place = Place()
    summaries: Place = Place()


_SENT = msgspec.json.Decoder(Sent)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into one shipment, and where the spool is after it."""

    events: list[msgspec.Raw]
    summaries: list[Summary]
    sent: Sent
    dropped: int = 0
    """Lines that cannot be sent: no JSON, or too long."""
    is_all: bool = True
    """Whether nothing was left."""

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return len(self.events) + len(self.summaries)


class Spool:
    """One node's part of a run directory, for one server."""

    def __init__(self, run_dir: Path, *, node: int, server: str) -> None:
        self._events = run_dir / log_name(node)
        self._summaries = run_dir / "summaries.jsonl"
        self._file = run_dir / f".sent.node{node}.json"
        self._mine = b'"node":%d,' % node
        self._node = node
        self.sent = self._read(server)

    def next(self, *, most_lines: int, most_bytes: int) -> Batch:
        """Return what comes next; events go before rows."""
        events = read_on(
            self._events,
            self.sent.events,
            most_lines=min(most_lines, MOST_EVENTS),
            most_bytes=most_bytes,
            longest=_LONGEST,
        )
        taken = sum(len(line.data) for line in events.lines)
        whole = [msgspec.Raw(line.data) for line in events.lines if _is_json(line.data)]
        rows: list[Summary] = []
        place, is_all, too_long = self.sent.summaries, events.is_all, 0
        if events.is_all and taken < most_bytes and len(events.lines) < most_lines:
            piece = read_on(
                self._summaries,
                place,
                most_lines=min(most_lines - len(events.lines), MOST_SUMMARIES),
                most_bytes=most_bytes - taken,
                longest=_LONGEST - taken,
            )
            rows = [row for line in piece.lines if (row := self._row(line)) is not None]
            place, is_all, too_long = piece.place, piece.is_all, piece.too_long
        return Batch(
            events=whole,
            summaries=rows,
            sent=msgspec.structs.replace(self.sent, events=events.place, summaries=place),
            dropped=len(events.lines) - len(whole) + events.too_long + too_long,
            is_all=is_all,
        )

    def acknowledge(self, batch: Batch) -> None:
        """Remember that a batch has arrived, or needs not."""
        if batch.sent == self.sent:
            return
        self.sent = batch.sent
        with contextlib.suppress(OSError):  # It is sent once more then, and known there.
            replace_file(self._file, msgspec.json.encode(self.sent))

    def _row(self, line: Line) -> Summary | None:
        """Return a row of this node; nodes that share a file system share the file."""
        if self._mine not in line.data:
            return None
        with contextlib.suppress(msgspec.MsgspecError, RecursionError):
            row = _SUMMARY.decode(line.data)
            return row if row.node == self._node else None
        return None

    def _read(self, server: str) -> Sent:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            sent = _SENT.decode(self._file.read_bytes())
            if sent.server == server:
                return sent
        return Sent(server=server)


def describe_run(run_dir: Path, key: str = "") -> Run:
    """Return which run it is, by its ``run.json`` where there is one, and it is this run's."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
        info = _RUN_INFO.decode((run_dir / "run.json").read_bytes())
        if not key or info.key == key:
            return run_of(info, run_dir)
    return Run(key=key or key_of(run_dir), name=_name_of(run_dir))


def run_of(info: RunInfo, run_dir: Path) -> Run:
    """Return which run it is that its ``run.json`` tells of."""
    command = info.launch.get("command")
    words = command if isinstance(command, list) else info.argv
    return Run(
        key=info.key or key_of(run_dir),
        name=_name_of(run_dir),
        run_id=info.run_id[:_LONGEST_WORD],
        host=info.host,
        started_at=info.started_at,
        command=[str(word)[:_LONGEST_WORD] for word in words[:_MOST_WORDS]],
        versions=info.versions,
    )


def _name_of(run_dir: Path) -> str:
    return os.fsencode(run_dir.resolve().name).decode(errors="replace")  # A name need not be of characters.


def key_of(run_dir: Path) -> str:
    """Return the key of a run that no launcher gave one: of its directory's name, the same on all nodes."""
    name = f"holdfast run {run_dir.resolve().name}"
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]  # A name need not be of characters.


def make_shipment(run: Run, node: int, batch: Batch | None = None) -> Shipment:
    """Return a shipment of a batch; without one it only asks for orders."""
    if batch is None:
        return Shipment(run=run, node=node)
    return Shipment(run=run, node=node, events=batch.events, summaries=batch.summaries)


def _is_json(line: bytes) -> bool:
    """Say whether a line can be put into a shipment; what a killed writer left cannot."""
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
