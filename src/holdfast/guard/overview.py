"""What a guard knows, as metrics: the ranks of its node; on node 0, the run as its log tells it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from holdfast.guard.eventlog import log_name
from holdfast.guard.spool import describe_run
from holdfast.incidents.story import Story
from holdfast.metrics.meter import Meter
from holdfast.metrics.seen import Pace, RunSeen, Tally, read_paces
from holdfast.metrics.sheet import Sheet
from holdfast.observe.eventlog import decode_line
from holdfast.observe.tail import Place, read_on
from holdfast.telemetry import Summary

_MOST_LINES, _MOST_BYTES = 1000, 4 << 20


class Overview(Collector):
    """Made anew once a second by one thread; others only read what is finished."""

    def __init__(self, run_dir: Path, *, node: int, key: str) -> None:
        self._run_dir = run_dir
        self._node = node
        self._key = key
        self._log = run_dir / log_name(node)
        self._place = Place()
        self._story, self._tally = Story(), Tally()
        self._summary: Summary | None = None
        self._attempt = -1
        self._paces: dict[int, Pace] = {}
        self._meter = Meter()
        self._metrics: list[Metric] = []

    def describe(self) -> Iterable[Metric]:
        """Return nothing: nothing has to be looked up to register this."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return what was last made."""
        return self._metrics

    def take(self, summary: Summary) -> None:
        """Take in what the workers of the node did in a second."""
        if summary.attempt != self._attempt:
            self._attempt, self._paces = summary.attempt, {}
        # A new value, not a changed one: another thread may be reading the old one.
        self._paces = self._paces | {pace.rank: pace for pace in read_paces(summary)}
        self._summary = summary

    def refresh(self, now_s: float) -> None:
        """Read what is new in the log, and make the metrics."""
        self._read_log()
        sheet = Sheet()
        self._meter.describe([self._see(now_s)], sheet)
        self._metrics = sheet.metrics()

    def _see(self, now_s: float) -> RunSeen:
        run = describe_run(self._run_dir, self._key)
        summary = self._summary
        step = max(summary.steps.values(), default=-1) if summary is not None else -1
        if summary is not None:
            self._story.add_summary(summary)
        view = self._story.view()
        hosts = sorted({worker.host for worker in view.workers if worker.node == self._node})
        return RunSeen(
            key=run.key,
            name=run.name,
            host=run.host,
            heard_s=now_s,
            view=view,
            step=step,
            tally=self._tally,
            paces=tuple(self._paces.values()),
            lost_records=dict.fromkeys(hosts, summary.lost if summary is not None else 0),
            is_whole=self._node == 0,
        )

    def _read_log(self) -> None:
        while True:
            piece = read_on(
                self._log, self._place, most_lines=_MOST_LINES, most_bytes=_MOST_BYTES, longest=_MOST_BYTES
            )
            if self._place.inode not in (0, piece.place.inode):  # Another log is in its place.
                self._story, self._tally = Story(), Tally()
            self._place = piece.place
            for line in piece.lines:
                # What a killed writer left is no event.
                with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
                    record = decode_line(line.data)
                    self._story.add(record)
                    self._tally.add(record)
            if piece.is_all:
                return
