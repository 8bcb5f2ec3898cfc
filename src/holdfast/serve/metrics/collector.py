"""The server's metrics: of the runs that it keeps, and of itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec
from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from holdfast.metrics.meter import Limits, Meter
from holdfast.metrics.sheet import Sheet
from holdfast.serve.metrics.counters import BUCKETS_S, Counts, ServerCounters
from holdfast.serve.metrics.watching import Runs, Shown, Views, Watch


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where the numbers come from."""

    store: Runs
    views: Views
    counters: ServerCounters
    limit_bytes: int | None = None
    """To which the store may grow; None: it is not limited."""
    messages: Callable[[], Mapping[str, int]] = dict
    """What became of messages for the webhook, by outcome."""
    clock: Callable[[], float] = time.time


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """How much is shown, and how often it is looked up."""

    shown: Shown = Shown()
    limits: Limits = Limits()
    fresh_s: float = 2.0
    """The store is not asked more often, however many scrape."""


class ServerMetrics(Collector):
    """Collects what is to be shown; safe to be called from many threads."""

    def __init__(self, sources: Sources, extent: Extent | None = None) -> None:
        self._sources = sources
        self._extent = extent or Extent()
        self._watch = Watch(sources.store, sources.views, self._extent.shown)
        self._meter = Meter(self._extent.limits)
        self._lock = threading.Lock()
        self._kept: tuple[float, list[Metric]] | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: nobody has to look into the store to register this."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return all metrics as they are now, or were a moment ago."""
        with self._lock:
            now_s = self._sources.clock()
            if self._kept is None or not 0 <= now_s - self._kept[0] < self._extent.fresh_s:
                self._kept = now_s, self._look(now_s)
            return self._kept[1]

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the text for what a client accepts, and its type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def _look(self, now_s: float) -> list[Metric]:
        sheet = Sheet()
        watched = self._watch.look(now_s)
        self._meter.describe(watched.runs, sheet)
        sheet.put("holdfast_server_runs_live", watched.live)
        sheet.put("holdfast_server_runs_silent", watched.silent)
        sheet.put("holdfast_server_runs_omitted", watched.omitted)
        describe_counts(self._sources.counters.read(), sheet)
        self._describe_store(sheet)
        for outcome, count in sorted(self._sources.messages().items()):
            sheet.put("holdfast_server_messages_total", count, outcome)
        return sheet.metrics()

    def _describe_store(self, sheet: Sheet) -> None:
        size = self._sources.store.size()
        sheet.put("holdfast_server_store_size_bytes", size.bytes)
        sheet.put("holdfast_server_store_runs", size.runs)
        sheet.put("holdfast_server_store_events", size.events)
        if self._sources.limit_bytes is not None:
            sheet.put("holdfast_server_store_limit_bytes", self._sources.limit_bytes)


def describe_counts(counts: Counts, sheet: Sheet) -> None:
    """Put down what the server counts of itself."""
    sheet.put("holdfast_server_shipments_total", counts.shipments)
    sheet.put("holdfast_server_events_total", counts.events)
    sheet.put("holdfast_server_duplicates_total", counts.duplicates)
    sheet.put("holdfast_server_refused_lines_total", counts.refused)
    sheet.put("holdfast_server_rejected_shipments_total", counts.rejected)
    sheet.put("holdfast_server_waiting_shipments", counts.waiting)
    sheet.put_histogram("holdfast_server_take_seconds", BUCKETS_S, counts.take_buckets, counts.take_s)
