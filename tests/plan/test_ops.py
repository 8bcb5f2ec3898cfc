"""Schedules print and parse, and a line that does not parse is named."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.plan.ops import KINDS, Op, Schedule, parse_op, parse_schedule
from holdfast.plan.problem import Problem, Worker
from problems import problems, random_schedule

SMALL = """\
dp 2 pp 2 microbatches 1
0.0: 0F0.0 0F1.0 0I0.0 0W0.0 0B1.0
0.1: 1F0.0 1B0.0 1F1.0 1I1.0 1W1.0
1.0: -
1.1: -
"""


def test_the_text_of_a_schedule() -> None:
    """Stage, kind, pipeline and micro-batch stand in this order, and who does nothing has a dash."""
    orders = (
        (Op("F", 0, 0, 0), Op("F", 1, 0, 0), Op("I", 0, 0, 0), Op("W", 0, 0, 0), Op("B", 1, 0, 0)),
        (Op("F", 0, 0, 1), Op("B", 0, 0, 1), Op("F", 1, 0, 1), Op("I", 1, 0, 1), Op("W", 1, 0, 1)),
        (),
        (),
    )
    schedule = Schedule(dp=2, pp=2, microbatches=1, orders=orders)
    assert str(schedule) == SMALL
    assert parse_schedule(SMALL) == schedule
    assert schedule.order(Worker(0, 1)) == orders[1]
    assert str(Op("F", 1, 4, 2)) == "2F1.4"


@given(problems(), st.randoms(use_true_random=False))
def test_any_schedule_parses_back(problem: Problem, rng: random.Random) -> None:
    """What is printed is what was there, whatever spaces and empty lines come in."""
    schedule = random_schedule(problem, rng)
    text = str(schedule)
    assert parse_schedule(text) == schedule
    assert parse_schedule("\n" + text.replace("\n", "  \n\n").replace(": ", ":   ")) == schedule


@given(st.sampled_from(KINDS), *[st.integers(0, 999_999_999)] * 3)
def test_any_operation_parses_back(kind: str, pipeline: int, microbatch: int, stage: int) -> None:
    """An operation survives its text."""
    op = Op(kind, pipeline, microbatch, stage)
    assert parse_op(str(op)) == op


@pytest.mark.parametrize("word", ["", "-", "2F1", "F1.4", "2X1.4", "2f1.4", "2F1.4.5", "-2F1.4", "2F 1.4"])
def test_a_word_that_is_no_operation(word: str) -> None:
    """A word that is no operation is quoted, with an example of one that is."""
    with pytest.raises(InputError) as caught:
        parse_op(word)
    assert str(caught.value) == (
        f"{word!r} is no operation, expected STAGE, one of FIWB, PIPELINE.MICROBATCH: 2F1.4"
    )


HEADS = {
    "": "line 1 is '', expected 'dp 3 pp 4 microbatches 6'",
    "dp 2 pp 2": "line 1 is 'dp 2 pp 2', expected 'dp 3 pp 4 microbatches 6'",
    "0.0: -": "line 1 is '0.0: -', expected 'dp 3 pp 4 microbatches 6'",
    "dp 2 pp 0 microbatches 1": "line 1 is 'dp 2 pp 0 microbatches 1', expected numbers of 1 or more",
    "dp 2 pp 2 microbatches 1\n0.0: -": "the schedule has 1 workers, expected dp x pp = 4",
}


@pytest.mark.parametrize("text", HEADS)
def test_a_head_that_is_wrong(text: str) -> None:
    """A schedule without a head, or with another number of workers than it says, is refused."""
    with pytest.raises(InputError) as caught:
        parse_schedule(text)
    assert str(caught.value) == HEADS[text]


@pytest.mark.parametrize("row", [2, 3, 4, 5])
@pytest.mark.parametrize("broken", ["nonsense", "9.9: -", "0.0 0F0.0", "{worker} -", "{worker}: 0F0.0 2Z1.4"])
def test_every_malformed_line_is_named(row: int, broken: str) -> None:
    """Whichever line is broken, the message has its number and its worker."""
    lines = SMALL.splitlines()
    worker = lines[row - 1].split(":")[0]
    lines[row - 1] = line = broken.format(worker=worker)
    with pytest.raises(InputError) as caught:
        parse_schedule("\n".join(lines))
    expected = f"line {row} is {line!r}, expected the operations of worker '{worker}: …'"
    if line.endswith("2Z1.4"):
        words = "'2Z1.4' is no operation, expected STAGE, one of FIWB, PIPELINE.MICROBATCH: 2F1.4"
        expected = f"line {row}, worker {worker}: {words}"
    assert str(caught.value) == expected


def test_lines_out_of_order_are_named() -> None:
    """Workers come pipeline by pipeline; two that changed places are noticed at the first."""
    head, first, second, *rest = SMALL.splitlines()
    with pytest.raises(InputError, match=r"^line 2 is '0\.1: .*', expected .* of worker '0\.0: …'$"):
        parse_schedule("\n".join([head, second, first, *rest]))
