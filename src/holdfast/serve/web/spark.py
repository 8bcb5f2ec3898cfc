"""A run's last step times as a line so small that a list has one for each run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles

from markupsafe import Markup

from holdfast.diagnose.telling import tell_duration
from holdfast.serve.store import PacePoint
from holdfast.serve.svg import num


def draw_spark(points: Sequence[PacePoint]) -> Markup:
    """Return the last step times as a tiny line."""
    if len(points) < 2:
        return Markup("")
    top = highest(points)
    step = 100 / (len(points) - 1)
    places = [(index * step, 22 - 20 * min(point.step_s / top, 1.0)) for index, point in enumerate(points)]
    path = "M" + "L".join(f"{num(x)} {num(y)}" for x, y in places)
    words = f"from {tell_duration(points[0].step_s)} to {tell_duration(points[-1].step_s)}"
    return Markup(
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<path class="base" d="M0 22H100"/><path d="{}"/></svg>'
    ).format(f"step times, {words}", path)


def highest(points: Sequence[PacePoint]) -> float:
    """Return the top of the figure: a single step that took ages must not flatten all others."""
    values = [point.step_s for point in points]
    slowest = [point.slowest_s for point in points]
    top = quantiles(values, n=100)[97] if len(values) > 20 else max(values)
    return 1.25 * max(top, median(slowest), 1e-6)
