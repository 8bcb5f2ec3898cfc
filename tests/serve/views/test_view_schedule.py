"""The schedule in force, planned from what the events of a run say."""

from __future__ import annotations

import pytest

from helpers import wait_until
from holdfast.incidents.values import RunView, Worker
from holdfast.serve.svg import STYLE
from holdfast.serve.web.views.page import read_static
from holdfast.serve.web.views.schedule import Schedules, draw_schedule, problem_of


def _view(*, without: int | None = None, slow: int | None = None) -> RunView:
    workers = tuple(
        Worker(
            rank=rank,
            node=0,
            host="a",
            state="dead" if rank == without else "training",
            place=None if rank == without else rank,
            speed=0.5 if rank == slow else 1.0,
        )
        for rank in range(8)
    )
    return RunView(pp=4, microbatches=6, world_size=8, workers=workers)


def test_who_is_dead_or_slow_is_so_in_the_plan() -> None:
    """Places without a holder have speed 0, others what the plan in force reckons with."""
    problem = problem_of(_view(without=2, slow=5))
    assert problem is not None
    assert problem.speeds == ((1, 1, 0, 1), (1, 0.5, 1, 1))


@pytest.mark.parametrize("view", [RunView(), RunView(pp=4, world_size=8), RunView(pp=2, microbatches=4)])
def test_what_is_no_pipeline_has_no_plan(view: RunView) -> None:
    """Nor has one that has not said its shape yet."""
    assert problem_of(view) is None


def test_pictures_carry_no_style_and_the_stylesheet_knows_all_their_classes() -> None:
    """The content policy allows no style in a page; the colours are those of ``holdfast plan``."""
    problem = problem_of(_view(without=2, slow=5))
    assert problem is not None
    drawn = str(draw_schedule(problem).svg)
    assert drawn.startswith("<svg")
    assert "<style" not in drawn
    css = read_static("holdfast.css").decode()
    for rule in STYLE.split("}"):
        for name in rule.partition("{")[0].split(","):
            if name.startswith("."):
                assert f".gantt {name}" in css or f".figure {name}" in css or f"text{name}" in css, name


def test_a_picture_that_takes_long_is_fetched_later() -> None:
    """No page waits for it."""
    schedules = Schedules()
    problem = problem_of(_view())
    assert problem is not None
    try:
        first = schedules.find(problem, wait_s=0.0)
        assert first.is_ready or first.words == "the schedule is being drawn"
        wait_until(lambda: schedules.find(problem, wait_s=0.0).svg, "the picture")
    finally:
        schedules.close()
