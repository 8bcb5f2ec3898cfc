"""A step as it was executed stands beside its plan: same operations, two times."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import msgspec
import pytest

from holdfast.errors import InputError
from holdfast.job.timeline import Row
from holdfast.plan.problem import Costs, Problem
from holdfast.plan.timing import Timed, time_schedule
from holdfast.serve.beside import draw_page, draw_panels, make_document, say_figures, say_unit
from holdfast.serve.executed import choose_step, compare, durations
from holdfast.serve.gantt import draw
from schedules import make_problem, one_f_one_b, timed_1f1b

DEAD = make_problem(2, 2, 2, dead="1.1")
Ranks = dict[int, list[Row]]


def _ranks(timed: Timed, *, began_s: float = 100.0, unit_s: float = 0.01) -> Ranks:
    """Return what the ranks of a job would have recorded, had it gone by the given times."""
    pp = timed.schedule.pp
    ranks: Ranks = {}
    for worker, op, start, end in timed.rows():
        row = (op, began_s + start * unit_s, began_s + end * unit_s)
        ranks.setdefault(worker.pipeline * pp + worker.stage, []).append(row)
    return ranks


def _step(problem: Problem, unit_s: float = 0.01) -> Ranks:
    return _ranks(timed_1f1b(problem), unit_s=unit_s)


def test_a_step_is_timed_from_its_first_start_in_milliseconds() -> None:
    """Who did nothing was dead; the shape follows from the operations."""
    executed = choose_step({4: _step(DEAD)})
    assert (executed.step, executed.problem) == (4, DEAD)
    assert executed.timed.schedule == one_f_one_b(DEAD)
    expected = timed_1f1b(DEAD)
    assert executed.timed.makespan == pytest.approx(10 * expected.makespan)
    assert executed.timed.starts[0] == pytest.approx([10 * start for start in expected.starts[0]])


def test_the_typical_step_is_the_median_of_those_that_went_as_the_last_one() -> None:
    """Steps before a death have another schedule, and are not mixed with those after it."""
    healthy = make_problem(2, 2, 2)
    steps = {0: _step(healthy, 0.001), 1: _step(healthy, 0.002)}
    steps |= {step: _step(DEAD, unit_s) for step, unit_s in ((2, 0.05), (3, 0.01), (4, 0.02))}
    executed = choose_step(steps)
    assert (executed.step, executed.alike, executed.is_median) == (4, 3, True)
    asked = choose_step(steps, 0)
    assert (asked.step, asked.alike, asked.is_median, asked.problem) == (0, 2, False, healthy)


@pytest.mark.parametrize(("wanted", "words"), [(None, "no step was"), (2, "step 2 was not")])
def test_a_step_with_a_hole_in_it_is_refused(wanted: int | None, words: str) -> None:
    """A worker that was killed afterwards has left no record of what it did."""
    ranks = _step(make_problem(2, 2, 2))
    del ranks[3]
    with pytest.raises(InputError, match=f"{words} recorded whole.* is killed leaves no timeline"):
        choose_step({2: ranks}, wanted)


def test_what_was_done_twice_or_at_another_stage_is_not_whole() -> None:
    """Such records are of two runs."""
    twice, elsewhere = _step(DEAD), _step(DEAD)
    twice[0] += twice[0][:1]
    elsewhere[1], elsewhere[2] = elsewhere[2], elsewhere[1]
    for ranks in (twice, elsewhere, {}):
        with pytest.raises(InputError):
            choose_step({0: ranks})


def test_the_plan_has_the_same_operations_at_the_times_of_the_costs() -> None:
    """Costs are milliseconds, and the schedule is the executed one."""
    costs = (Costs(8, 9, 10), Costs(8, 9, 10))
    problem = msgspec.structs.replace(DEAD, costs=costs)
    compared = compare(choose_step({0: _step(DEAD)}), problem)
    assert compared.planned == time_schedule(problem, one_f_one_b(DEAD))
    found = durations(compared)
    assert [(each.kind, each.planned_ms) for each in found] == [("F", 8), ("B", 19)]
    assert [each.executed_ms for each in found] == pytest.approx([10, 20])
    assert say_unit(compared) == "planned: by the costs given, in ms"


def test_without_costs_all_operations_are_as_long_as_the_median() -> None:
    """Then a step that went as planned has its planned length, whatever the unit was."""
    compared = compare(choose_step({0: _step(DEAD, 0.03)}), DEAD)
    assert compared.is_scaled
    assert compared.planned.makespan == pytest.approx(compared.executed.timed.makespan)
    assert [each.ratio for each in durations(compared)] == pytest.approx([1.0, 1.0])


def test_figures_say_executed_planned_and_their_ratio() -> None:
    """For the step as a whole and for each kind of operation."""
    problem = msgspec.structs.replace(DEAD, costs=(Costs(8, 8, 8), Costs(8, 8, 8)))
    figures = {each.name: each for each in say_figures(compare(choose_step({6: _step(DEAD)}), problem))}
    assert list(figures) == ["step", "period", "makespan", "F forward", "B backward"]
    assert (figures["step"].value, figures["step"].remark) == (
        "6",
        "the median in length of 1 recorded with this schedule",
    )
    assert figures["F forward"].value == "10 ms"
    assert figures["F forward"].remark == "planned 8 ms, x1.25, median of 8"


def test_both_charts_are_on_one_scale_one_under_the_other() -> None:
    """The same operations in both, as wide as they are long."""
    problem = msgspec.structs.replace(DEAD, costs=(Costs(5, 5, 5), Costs(5, 5, 5)))
    compared = compare(choose_step({0: _step(DEAD)}), problem)
    root = ET.fromstring(draw(draw_panels(compared)))
    words = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert words.index("Step 0 as planned, in ms") < words.index("Step 0 as executed, in ms")
    assert words.count("1.1 dead") == 2
    rects = [each for each in root.iter() if each.tag.endswith("}rect") and len(each)]
    widths = [float(each.get("width", "")) for each in rects if each.get("class") == "F"]
    assert len(rects) == 2 * 16
    planned, executed = widths[: len(widths) // 2], widths[len(widths) // 2 :]
    assert [each + 1 for each in executed] == pytest.approx([2 * (each + 1) for each in planned], abs=0.3)


def test_the_page_has_the_figures_and_the_charts() -> None:
    """And says where the planned times come from."""
    page = draw_page(compare(choose_step({0: _step(DEAD)}), DEAD))
    assert "<b>10 ms</b><span>planned 10 ms, x1.00, median of 8</span>" in page
    assert "1.1 dead; step 0 as executed, beside its plan" in page
    assert "Planned: every operation as long as the median was" in page
    assert page.count("<svg") == 1
    assert not re.search(r"https?://(?!www\.w3\.org)", page)


def test_the_document_has_both_times_of_every_operation() -> None:
    """In the order of execution, worker by worker."""
    compared = compare(choose_step({0: _step(DEAD)}), DEAD)
    document = make_document(compared)
    assert (document.step, document.dead, len(document.ops)) == (0, ["1.1"], 16)
    assert document.ops[0] == ("0.0", "F", 0, 0, 0, 0.0, 10.0, 0.0, 10.0)
    assert document.makespan.executed == document.makespan.planned == max(row[6] for row in document.ops)
