"""The figure of a simulation: throughput of every strategy over time, and how many workers were alive."""

from __future__ import annotations

from holdfast.serve.chart import Chart, Panel, Series, draw, page
from holdfast.simulate.strategies import NAMES
from holdfast.simulate.study import Study
from holdfast.simulate.windows import Points, average_windows, live_workers

WINDOWS = 160
TITLE = "Training throughput under failures"
LOSSES = "lines: computing, some of it redone later; percent: net average, as a share of fault-free"
IDEALS = ("fault-scaled", "fault-free")


def draw_study(study: Study, story: str) -> str:
    """Return the figure as SVG; each name stands at the height of its average, all losses included."""
    fitted = study.fitted
    unit_s, unit = (3600.0, "hours") if fitted.duration_s >= 2 * 3600 else (60.0, "minutes")
    workers = Series(name="workers", points=_scaled(live_workers(fitted), unit_s), is_step=True, is_area=True)
    minutes = fitted.duration_s / WINDOWS / 60
    return draw(
        Chart(
            title=TITLE,
            subtitle=(study.job, story, LOSSES),
            x_label=unit,
            panels=(
                Panel(
                    y_label=f"samples/s in windows of {minutes:.2g} min",
                    series=_lines(study, unit_s),
                    height=360,
                ),
                Panel(y_label="workers alive", series=(workers,), height=70),
            ),
        )
    )


def study_page(study: Study, drawing: str) -> str:
    """Return a page with the figure, and what is modelled below it."""
    notes = [f"{result.name}: {result.modelled or result.missing}." for result in study.results]
    return page(TITLE, [drawing], notes)


def _lines(study: Study, unit_s: float) -> tuple[Series, ...]:
    return tuple(
        Series(
            name=f"{result.name} {study.share(result.outcome):.0%} net",
            points=_scaled(average_windows(result.outcome, WINDOWS), unit_s),
            is_step=True,
            is_main=result.name == "holdfast",
            is_reference=result.name in IDEALS,
            colour=NAMES.index(result.name),
            label_at=result.outcome.throughput,
            note=result.modelled,
        )
        for result in study.results
        if result.outcome is not None
    )


def _scaled(points: Points, unit_s: float) -> Points:
    return tuple((at_s / unit_s, value) for at_s, value in points)
