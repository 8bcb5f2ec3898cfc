"""What a server shows to Prometheus: its runs, and itself."""

from __future__ import annotations

from holdfast.serve.metrics.collector import ServerMetrics as ServerMetrics
from holdfast.serve.metrics.collector import Sources as Sources
from holdfast.serve.metrics.counters import ServerCounters as ServerCounters
from holdfast.serve.metrics.route import metrics_route as metrics_route
