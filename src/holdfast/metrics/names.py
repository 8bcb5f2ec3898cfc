"""All that is exposed: each metric's name, kind, meaning and labels, in one place."""

from __future__ import annotations

from typing import Literal

import msgspec
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

Kind = Literal["gauge", "counter", "info", "histogram"]


class Definition(msgspec.Struct, frozen=True):
    """One metric."""

    name: str
    """As Prometheus stores it."""
    kind: Kind
    words: str
    labels: tuple[str, ...] = ()

    def make(self) -> Metric:
        """Return it without any values."""
        match self.kind:
            case "gauge":
                return GaugeMetricFamily(self.name, self.words, labels=self.labels)
            case "counter":
                return CounterMetricFamily(self.name.removesuffix("_total"), self.words, labels=self.labels)
            case "info":
                return InfoMetricFamily(self.name.removesuffix("_info"), self.words, labels=self.labels)
            case "histogram":
                return HistogramMetricFamily(self.name, self.words, labels=self.labels)


_RUN = ("run",)
_KIND = ("run", "kind")

RUN = (
    Definition("holdfast_run_info", "info", "A run: its name, key, torch's run id, host of node 0.", _RUN),
    Definition("holdfast_run_state", "gauge", "1 for the state that the run is in.", ("run", "state")),
    Definition("holdfast_run_heard_timestamp_seconds", "gauge", "When the run was heard of last.", _RUN),
    Definition("holdfast_run_attempt", "gauge", "Starts of all workers so far, counted from 0.", _RUN),
    Definition("holdfast_run_nodes", "gauge", "Nodes of the run.", _RUN),
    Definition("holdfast_step", "gauge", "The last step that was heard of.", _RUN),
    Definition("holdfast_steps_total", "counter", "Steps seen, those done again included.", _RUN),
    Definition("holdfast_step_seconds", "gauge", "Time of a step, median over ranks.", _RUN),
    Definition(
        "holdfast_step_own_seconds",
        "gauge",
        "Of that, what a rank needs for itself, without waiting for others; median over ranks.",
        _RUN,
    ),
    Definition("holdfast_workers", "gauge", "Workers by how they fare.", ("run", "state")),
    Definition("holdfast_incidents_total", "counter", "Incidents so far.", _KIND),
    Definition("holdfast_incidents_open", "gauge", "Incidents that are not over.", _KIND),
    Definition(
        "holdfast_incidents_unattended",
        "gauge",
        "Incidents that are not over and about which nothing has been done.",
        _KIND,
    ),
    Definition(
        "holdfast_incident_lost_seconds_total",
        "counter",
        "Time that incidents cost, against a healthy job, what was done about them included.",
        _KIND,
    ),
    Definition(
        "holdfast_incident_paid_seconds_total",
        "counter",
        "Of the time lost, what was paid for what was done.",
        _KIND,
    ),
    Definition(
        "holdfast_incident_saved_seconds_total",
        "counter",
        "Time that incidents would have cost more, had nothing been done.",
        _KIND,
    ),
    Definition("holdfast_lost_gpu_seconds_total", "counter", "Time lost, over all GPUs.", _RUN),
    Definition("holdfast_paid_gpu_seconds_total", "counter", "Time paid, over all GPUs.", _RUN),
    Definition("holdfast_saved_gpu_seconds_total", "counter", "Time saved, over all GPUs.", _RUN),
    Definition("holdfast_deaths_total", "counter", "Workers that ended without success.", _RUN),
    Definition("holdfast_actions_total", "counter", "What was done about slow jobs.", ("run", "level")),
)
"""Of a whole run."""

RANKS = (
    Definition(
        "holdfast_worker_own_ratio",
        "gauge",
        "A rank's own time of a step over the median of all ranks; only the slowest ranks.",
        ("run", "rank", "host"),
    ),
    Definition(
        "holdfast_host_own_ratio",
        "gauge",
        "The same for a host, median over its ranks; the slowest hosts, and the mean of the others.",
        ("run", "host"),
    ),
    Definition("holdfast_hosts_omitted", "gauge", "Hosts that are shown together as others.", _RUN),
    Definition(
        "holdfast_guard_lost_records_total",
        "counter",
        "Step records that were overwritten before the guard of the host could read them.",
        ("run", "host"),
    ),
)
"""Of ranks and hosts."""

SERVER = (
    Definition("holdfast_server_runs_live", "gauge", "Runs heard of within the last minutes."),
    Definition("holdfast_server_runs_silent", "gauge", "Runs that are silent without having ended."),
    Definition("holdfast_server_runs_omitted", "gauge", "Runs not shown because there are too many."),
    Definition("holdfast_server_shipments_total", "counter", "Shipments taken for good."),
    Definition("holdfast_server_events_total", "counter", "Events and summary rows that were new."),
    Definition("holdfast_server_duplicates_total", "counter", "Events and rows that were there already."),
    Definition("holdfast_server_refused_lines_total", "counter", "Lines that are no events."),
    Definition("holdfast_server_rejected_shipments_total", "counter", "Shipments that were not taken."),
    Definition("holdfast_server_waiting_shipments", "gauge", "Shipments that wait to be stored."),
    Definition("holdfast_server_take_seconds", "histogram", "Time to store what was sent."),
    Definition("holdfast_server_store_size_bytes", "gauge", "Size of the store."),
    Definition("holdfast_server_store_limit_bytes", "gauge", "Size at which old runs are removed."),
    Definition("holdfast_server_store_runs", "gauge", "Runs in the store."),
    Definition("holdfast_server_store_events", "gauge", "Events in the store."),
    Definition("holdfast_server_messages_total", "counter", "Messages for the webhook.", ("outcome",)),
)
"""Of the server itself."""

DEFINITIONS = {each.name: each for each in (*RUN, *RANKS, *SERVER)}
