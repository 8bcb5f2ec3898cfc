"""The plot of step times: well-formed, bounded, and told in words."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta

from holdfast.incidents.values import Incident, Stage
from holdfast.serve.store import PacePoint
from holdfast.serve.web.spark import draw_spark
from holdfast.serve.web.views.pace import make_pace
from holdfast.serve.web.views.plot import describe, draw_pace

START = datetime(2026, 11, 17, 11, 0, tzinfo=UTC)


def _at(second: float) -> str:
    return (START + timedelta(seconds=second)).isoformat()


def _points(count: int = 120) -> list[PacePoint]:
    return [
        PacePoint(
            at=_at(5 * n), step=10 * n, step_s=1.0 if n >= 60 else 0.5, slowest_s=1.1, slowest_rank=3, ranks=8
        )
        for n in range(count)
    ]


def _slow(*, closed_at: str | None = None) -> Incident:
    stages = (
        Stage(name="detected", at=_at(320), words="steps take <2x> as long", event_id="1"),
        Stage(name="done", at=_at(400), words="S2 is in force from step 800 on", event_id="2"),
    )
    return Incident(
        incident_id="1",
        kind="slow",
        opened_at=_at(320),
        closed_at=closed_at,
        since_step=600,
        stages=stages,
    )


def test_the_shade_begins_with_the_first_slow_step() -> None:
    """Not where it was noticed; it lasts until now while the incident is open."""
    pace = make_pace(_points(), [_slow()])
    [shade] = pace.shades
    assert shade.start == START + timedelta(seconds=300)
    assert shade.end == START + timedelta(seconds=595)
    assert pace.usual_s == 0.5
    assert [(mark.shape, mark.label) for mark in pace.marks] == [("triangle", ""), ("square", "S2")]


def test_the_figure_is_well_formed_small_and_told_in_words() -> None:
    """Everything a run says is escaped; no style is set in it."""
    pace = make_pace(_points(), [_slow(closed_at=_at(500))])
    drawn = str(draw_pace(pace))
    ET.fromstring(drawn)
    assert "style" not in drawn
    assert "<2x>" not in drawn
    assert len(drawn) < 30_000
    assert describe(pace) == (
        "Step time over 9 min 55 s, steps 0 to 1,190; now 1.00 s; usually 500 ms; "
        "slow from 11:05:00 to 11:08:20"
    )


def test_a_gap_is_not_bridged() -> None:
    """Between an attempt and the next nothing is drawn."""
    points = [*_points(20), *(p for p in _points(400) if p.at >= _at(1000))]
    line = str(draw_pace(make_pace(points, []))).split('class="line" d="')[1].split('"')[0]
    assert line.count("M") == 2


def test_without_points_there_is_no_figure() -> None:
    """One point is none for a line."""
    assert draw_pace(make_pace([], [_slow()])) == ""
    assert draw_spark(_points(1)) == ""
    ET.fromstring(str(draw_spark(_points(40))))
