"""What all runs say of the machines behind them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.incidents.values import Incident, RunView, Worker
from holdfast.reliability.rates import make_rate
from holdfast.serve.store import RunRow
from holdfast.serve.web.views.reliability import draw_curves, find_bad_nodes, look_back

NOW = datetime(2026, 11, 17, tzinfo=UTC)


def _run(
    key: str, *, days: float = 2.0, dead: tuple[int, ...] = (), nodes: int = 16
) -> tuple[RunRow, RunView]:
    start = NOW - timedelta(days=days)
    row = RunRow(
        key=key,
        name=key,
        run_id="",
        host="",
        started_at="",
        heard_at=NOW.isoformat(),
        step=0,
        nodes=nodes,
        events=0,
        command=[],
        versions={},
    )
    workers = tuple(
        Worker(rank=rank, node=rank // 8, host=f"n{rank // 8}", state="training") for rank in range(8 * nodes)
    )
    incidents = tuple(
        Incident(
            incident_id=f"{key}-{number}",
            kind="death",
            opened_at=(start + timedelta(hours=7 * number)).isoformat(),
            ranks=(rank,),
        )
        for number, rank in enumerate(dead)
    )
    view = RunView(
        started_at=start.isoformat(), world_size=8 * nodes, nodes=nodes, workers=workers, incidents=incidents
    )
    return row, view


def test_deaths_over_node_days_are_the_rate() -> None:
    """Nodes times the time that a run went on; a run that has not begun counts for nothing."""
    seen = look_back([_run("a"), _run("b", dead=(9, 70)), (_run("c")[0], RunView())])
    assert (seen.runs, seen.gpus_per_node, len(seen.hosts)) == (2, 8, 16)
    assert seen.node_days == pytest.approx(64.0)
    assert [failure.host for failure in seen.failures] == ["n1", "n8"]


def test_a_node_that_keeps_failing_is_called_a_lemon() -> None:
    """One failure each is nobody's fault."""
    seen = look_back([_run("a", days=14, dead=(40,) * 12 + (9, 70))])
    rows = find_bad_nodes(seen)
    assert (rows[0]["node"], rows[0]["is_lemon"]) == ("n5", True)
    assert not any(row["is_lemon"] for row in rows[1:])
    assert find_bad_nodes(look_back([_run("few", nodes=4, dead=(9,) * 9)])) == []


def test_curves_are_well_formed_and_carry_no_style() -> None:
    """The interval is drawn beside the estimate."""
    drawn = str(draw_curves(make_rate(3, 500.0), 8))
    ET.fromstring(drawn)
    assert "<style" not in drawn
    for words in ("at best", "at worst", "through failures", "MTTF"):
        assert words in drawn
