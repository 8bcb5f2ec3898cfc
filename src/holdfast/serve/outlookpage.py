"""What to expect of a job, as pictures: ETTR by size, and by failure rate and checkpoint interval."""

from __future__ import annotations

from holdfast.reliability.forecast import Band
from holdfast.reliability.intervals import Floats
from holdfast.reliability.outlook import Outlook
from holdfast.reliability.view import View
from holdfast.serve.chart import Chart, Panel, Series, draw, page
from holdfast.serve.contour import Contour, Level, draw_contour

_LONGEST_MIN = 1440.0
_SHORTEST_MIN = 1.0


def draw_outlook(outlook: Outlook, view: View) -> str:
    """Return the page as HTML."""
    return page(
        f"What to expect of {view.gpus:,} GPUs",
        [draw_sizes(outlook, view), draw_bands(view)],
        [
            "ETTR is the share of a run's time, from when it is submitted, in which it gets on. "
            "Restarting and by the best interval: the exact expectation of a long run.",
            f"Training through failures: {outlook.adaptive.caveat}.",
        ],
    )


def draw_sizes(outlook: Outlook, view: View) -> str:
    """Return ETTR and the time between failures for jobs from one node on."""
    found, is_free = view.curve, view.conditions.write_min == 0
    lines = [
        _series("train through", found.gpus, view.through, is_main=True),
        _series("restart", found.gpus, found.exact),
        _series("restart, best interval" if not is_free else "restart, no loss", found.gpus, found.best),
        _series("restart, formula", found.gpus, found.closed_form, is_reference=True),
    ]
    often = _series("time to failure", found.gpus, found.mttf_hours)
    chart = Chart(
        title="The larger the job, the more of its time goes to failures",
        subtitle=(
            f"{_say_conditions(view)}",
            f"at {view.gpus:,} GPUs: {outlook.ettr.exact:.3f} with restarts, "
            f"{outlook.adaptive.closed_form:.3f} through failures",
        ),
        x_label="GPUs",
        is_log=True,
        panels=(
            Panel(y_label="ETTR", series=tuple(lines)),
            Panel(y_label="hours to failure", series=(often,), height=140, is_log=True),
        ),
    )
    return draw(chart)


def draw_bands(view: View) -> str:
    """Return which intervals reach which ETTR, for rates around the job's own."""
    conditions = view.conditions
    rate = conditions.rate_per_1000_node_days
    shortest = min(_SHORTEST_MIN, conditions.checkpoint_min / 2)
    longest = max(_LONGEST_MIN, 2 * conditions.checkpoint_min)
    levels = tuple(
        _level(band, shortest, longest) for band in view.bands if len(band.rates_per_1000_node_days)
    )
    return draw_contour(
        Contour(
            title=f"What {view.gpus:,} GPUs need for an ETTR of so much",
            subtitle="within a line, that ETTR is reached by restarting; the dot is what was asked for",
            x_label="failures per 1000 node-days",
            y_label="work between two checkpoints, min",
            x_range=(rate / 10, rate * 10),
            y_range=(shortest, longest),
            levels=levels,
            here=(rate, conditions.checkpoint_min),
            here_name="this job",
        )
    )


def _level(band: Band, shortest: float, longest: float) -> Level:
    rates = band.rates_per_1000_node_days.tolist()
    low = [max(value, shortest) for value in band.shortest_min.tolist()]
    high = [min(max(value, shortest), longest) for value in band.longest_min.tolist()]
    there = list(zip(rates, high, strict=True))
    back = list(zip(rates, low, strict=True))[::-1]
    middle = (high[-1] * low[-1]) ** 0.5
    return Level(name=f"{band.level:g}", edge=(*there, *back), tip=(rates[-1], middle))


def _series(
    name: str, xs: Floats, ys: Floats, *, is_main: bool = False, is_reference: bool = False
) -> Series:
    points = tuple(zip(xs.tolist(), ys.tolist(), strict=True))
    return Series(name=name, points=points, is_main=is_main, is_reference=is_reference)


def _say_conditions(view: View) -> str:
    given = view.conditions
    return (
        f"{given.rate_per_1000_node_days:g} failures per 1000 node-days, a checkpoint every "
        f"{given.checkpoint_min:.3g} min that stops for {given.write_min:g} min, "
        f"restart {given.restart_min:g} min, queue {given.queue_min:g} min"
    )
