"""A schedule can be read as text: who does what, for how long, for whom, and who does nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.plan.grid import Place, choose_workers, draw, make_grid, mark
from holdfast.plan.problem import Costs, Worker
from schedules import make_problem, timed_1f1b

HEALTHY = """\
     0     2     4     6     8
0.0  F0 F1 .  .  B0--- .  B1---
0.1  .  F0 B0--- F1 B1--- .  .

1.0  F0 F1 .  .  B0--- .  B1---
1.1  .  F0 B0--- F1 B1--- .  .

F forward, B backward
"""


def test_a_schedule_is_drawn_as_a_person_would() -> None:
    """Letters with micro-batches, dashes for long operations, dots for idle time, pipelines apart."""
    problem = make_problem(2, 2, 2)
    assert draw(problem, timed_1f1b(problem)) == HEALTHY


def test_dead_and_slow_workers_are_marked_and_home_pipelines_raised() -> None:
    """A dead worker has no work, a slow one shows its speed, and re-routed work where it belongs."""
    problem = make_problem(2, 2, 2, dead="1.1", slow="1.0=0.5")
    text = draw(problem, timed_1f1b(problem))
    assert "1.0 x0.5  F0--- F1---" in text
    assert "\n1.1       dead\n" in text
    assert "F0¹" in text
    assert text.endswith("F forward, B backward, F3¹ re-routed from pipeline 1\n")


@pytest.mark.parametrize("is_split", [False, True])
def test_three_by_four_by_six_has_room_for_every_number(is_split: bool) -> None:
    """In a hundred columns, unit costs need no cut and no row is longer."""
    problem = make_problem()
    grid = make_grid(problem, timed_1f1b(problem, is_split=is_split))
    assert max(len(line) for line in str(grid).splitlines()) <= 100
    assert grid.notes == ()
    assert len(grid.rows) == 12
    for row in grid.rows:
        names = [cell.text.strip().rstrip("-") for cell in row.cells if cell.kind]
        assert sorted(names) == sorted(
            f"{kind}{microbatch}" for kind in ("FIW" if is_split else "FB") for microbatch in range(6)
        )


def test_without_room_for_home_pipelines_lower_case_says_re_routed() -> None:
    """The reader still sees what is foreign."""
    problem = make_problem(3, 4, 6, dead="1.2")
    timed = timed_1f1b(problem)
    narrow, wide = draw(problem, timed, width=85), draw(problem, timed, width=140)
    assert "f0" in narrow
    assert "lower case re-routed" in narrow
    assert "f0" not in wide
    assert "F0¹" in wide


def test_what_does_not_fit_is_cut_with_a_note() -> None:
    """Neither width nor height is exceeded, and what is missing is said."""
    problem = make_problem(30, 4, 60, dead="17.2")
    text = draw(problem, timed_1f1b(problem, is_split=True))
    assert max(map(len, text.splitlines())) <= 100
    assert "17.2  dead" in text
    assert "72 more workers are not shown." in text
    assert "the rest does not fit." in text


def test_pipelines_that_are_hit_are_shown_first_beside_a_healthy_one() -> None:
    """Whole pipelines, in their order."""
    problem = make_problem(50, 2, 1, dead="40.1 41.0 42.1", slow="43.0=0.5")
    shown = choose_workers(problem, 8)
    assert shown == [Worker(p, s) for p in (0, 40, 41, 42) for s in (0, 1)]
    assert choose_workers(problem, 1) == [Worker(40, 0), Worker(40, 1)]
    assert choose_workers(problem, 1000) == problem.workers


def test_operations_far_shorter_than_others_are_counted_instead_of_stretching_the_rest() -> None:
    """A stage that takes a thousandth does not make the picture a thousand times wider."""
    problem = make_problem(1, 2, 4, costs=(Costs(), Costs(0.001, 0.001, 0.001)))
    text = draw(problem, timed_1f1b(problem))
    assert max(map(len, text.splitlines())) <= 100
    assert "operations are too short to show." in text


def test_a_place_is_marked_below_its_row() -> None:
    """The carets stand under the operation."""
    problem = make_problem(2, 2, 2)
    lines = mark(problem, timed_1f1b(problem), Place(Worker(1, 0), 2)).splitlines()
    row = lines.index("1.0  F0 F1 .  .  B0--- .  B1---")
    assert lines[row + 1] == "                 ^^^^^^"


def test_a_place_far_to_the_right_is_brought_into_view() -> None:
    """The window moves to it, and says from where to where."""
    problem = make_problem(1, 2, 400)
    timed = timed_1f1b(problem)
    text = mark(problem, timed, Place(Worker(0, 1), 700))
    lines = text.splitlines()
    carets = next(line for line in lines if "^" in line)
    row = lines[lines.index(carets) - 1]
    assert row.startswith("0.1")
    assert row[carets.index("^")] == timed.schedule.orders[1][700].kind
    assert "From " in text


def test_a_place_on_a_worker_that_would_not_be_shown_is_shown() -> None:
    """However many workers there are."""
    problem = make_problem(60, 4, 1)
    assert "\n55.3" in mark(problem, timed_1f1b(problem), Place(Worker(55, 3), 1))


@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 40)),
    costs=st.tuples(*[st.floats(0.01, 100)] * 3),
    width=st.integers(40, 200),
    is_split=st.booleans(),
)
def test_any_schedule_fits_its_width(
    shape: tuple[int, int, int], costs: tuple[float, float, float], width: int, is_split: bool
) -> None:
    """Uneven costs, any shape: rows stay within the columns given, and cells follow the order of work."""
    problem = make_problem(*shape, costs=(Costs(*costs),) * shape[1])
    timed = timed_1f1b(problem, is_split=is_split)
    grid = make_grid(problem, timed, width=width)
    assert len(grid.axis.rstrip()) <= width + 6
    for row in grid.rows:
        assert len(str(row)) <= width
        drawn = [cell.kind for cell in row.cells if cell.kind]
        rest = iter(op.kind for op in timed.schedule.order(row.worker))
        assert all(kind in rest for kind in drawn)
