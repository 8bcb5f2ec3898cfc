"""The schedules beside the pages: who makes whose input, read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.guard.schedules import Schedules, find_makers
from holdfast.job.status import publish_schedule, schedule_path
from holdfast.plan.ops import parse_schedule
from holdfast.telemetry import Phase, Status

REROUTED = """dp 2 pp 2 microbatches 1
0.0: 0F0.0 0F1.0 0I0.0 0W0.0 0B1.0
0.1: 1F0.0 1B0.0
1.0: -
1.1: 1F1.0 1B1.0
"""
"""Worker 1.0 is dead, and 0.0 does its work."""


def _status(rank: int, op: int, generation: int = 3) -> Status:
    return Status(rank=rank, pid=1, generation=generation, step=0, op=op, phase=Phase.COMPUTE, since_ns=0)


def test_every_input_has_its_maker() -> None:
    """A forward needs the stage before, a backward the stage after, the last stage's its own forward."""
    assert find_makers(parse_schedule(REROUTED)) == {
        (0, 2): (1, 1),
        (0, 4): (3, 1),
        (1, 0): (0, 0),
        (1, 1): (1, 0),
        (3, 0): (0, 1),
        (3, 1): (3, 0),
    }


@pytest.mark.parametrize(
    ("rank", "op", "name"),
    [(0, 1, "0F1.0"), (3, 1, "1B1.0"), (3, 2, None), (3, -1, None), (2, 0, None), (4, 0, None)],
)
def test_an_operation_has_a_name_where_there_is_one(
    tmp_path: Path, rank: int, op: int, name: str | None
) -> None:
    """No index and no rank out of the schedule is an error."""
    publish_schedule(tmp_path, 3, REROUTED)
    assert Schedules(tmp_path).op(_status(rank, op)) == name


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"dp 2 pp 2\n"])
def test_a_schedule_that_cannot_be_read_says_nothing(tmp_path: Path, content: bytes | None) -> None:
    """It may not be there yet, or be something else."""
    if content is not None:
        schedule_path(tmp_path, 3).write_bytes(content)
    schedules = Schedules(tmp_path)
    assert (schedules.makers(3), schedules.op(_status(0, 0))) == ({}, None)


def test_a_schedule_is_read_again_only_when_it_was_replaced(tmp_path: Path) -> None:
    """A new attempt counts its generations from 0 again, with other schedules."""
    schedules = Schedules(tmp_path)
    assert schedules.makers(0) == {}
    publish_schedule(tmp_path, 0, REROUTED)
    schedules.refresh()
    first = schedules.makers(0)
    schedules.refresh()
    assert schedules.makers(0) is first
    publish_schedule(tmp_path, 0, "dp 1 pp 1 microbatches 1\n0.0: 0F0.0 0B0.0\n")
    schedules.refresh()
    assert schedules.makers(0) == {(0, 1): (0, 0)}
