"""A sheet of metrics that is filled in value by value, and then rendered by prometheus_client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client.core import HistogramMetricFamily, InfoMetricFamily, Metric

from holdfast.metrics.names import DEFINITIONS

_LONGEST = 200
"""Characters of a label's value; what others chose must not fill the memory of who scrapes."""


class Sheet:
    """What is exposed at one moment; only names of ``DEFINITIONS`` can be put down."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def put(self, name: str, value: float, *labels: str) -> None:
        """Put down a value, with its labels in the order of the definition."""
        definition = DEFINITIONS[name]
        values = dict(zip(definition.labels, map(_shorten, labels), strict=True))
        self._metric(name).add_sample(definition.name, values, float(value))

    def put_info(self, name: str, facts: Mapping[str, str], *labels: str) -> None:
        """Put down facts that are no numbers."""
        metric = self._metric(name)
        assert isinstance(metric, InfoMetricFamily)
        metric.add_metric([*map(_shorten, labels)], {word: _shorten(fact) for word, fact in facts.items()})

    def put_histogram(self, name: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> None:
        """Put down how many there were up to each bound, and above the last."""
        metric = self._metric(name)
        assert isinstance(metric, HistogramMetricFamily)
        buckets, seen = [], 0
        for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
            seen += count
            buckets.append((bound, float(seen)))
        metric.add_metric([], buckets, sum_value=total)

    def metrics(self) -> list[Metric]:
        """Return all of it."""
        return list(self._metrics.values())

    def _metric(self, name: str) -> Metric:
        if name not in self._metrics:
            self._metrics[name] = DEFINITIONS[name].make()
        return self._metrics[name]


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
