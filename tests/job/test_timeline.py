"""A timeline says when every operation of chosen steps ran, and never gets in the way of training."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.job.points import POINT_OF
from holdfast.job.timeline import SCHEMA_VERSION, Timeline, read_timelines
from holdfast.plan.ops import Op, parse_op

HEADER = {"schema": SCHEMA_VERSION, "rank": 0, "host": "a", "dropped": 0}
SPAN = {"step": 0, "pass": 1, "op": "0F0.0", "start_s": 1.0, "end_s": 2.0}


def _clock() -> Iterator[float]:
    """Tick by one second at every look."""
    now_s = 0.0
    while True:
        now_s += 1.0
        yield now_s


def _timeline(folder: Path, **more: object) -> Timeline:
    ticks = _clock()
    return Timeline(folder, rank=0, clock=lambda: next(ticks), **more)  # type: ignore[arg-type]


def _do(timeline: Timeline, step: int, *words: str) -> None:
    """Let a worker do operations, with the points that lie between them."""
    for op in map(parse_op, words):
        timeline.reach("receive", op, step)
        timeline.reach(POINT_OF[op.kind], op, step)  # type: ignore[arg-type]
        timeline.reach("done", op, step)
        timeline.reach("send", op, step)
    timeline.reach("reduction", None, step)


def _write(folder: Path, *lines: object, rank: int = 0) -> Path:
    path = folder / f"rank_{rank}.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def test_what_was_executed_is_read_again(tmp_path: Path) -> None:
    """An operation lasts from the point named after it to its end; waiting for input is none of it."""
    timeline = _timeline(tmp_path / "new" / "folder")
    _do(timeline, 3, "1F0.0", "1I0.0", "1W0.0")
    _do(timeline, 4, "1F0.0", "1B0.0")
    assert timeline.write()
    assert read_timelines(tmp_path / "new" / "folder") == {
        3: {0: [(Op("F", 0, 0, 1), 1, 2), (Op("I", 0, 0, 1), 3, 4), (Op("W", 0, 0, 1), 5, 6)]},
        4: {0: [(Op("F", 0, 0, 1), 7, 8), (Op("B", 0, 0, 1), 9, 10)]},
    }


def test_the_file_is_as_documented(tmp_path: Path) -> None:
    """One header, then one object per operation."""
    timeline = _timeline(tmp_path)
    _do(timeline, 7, "1F0.2")
    timeline.write()
    header, span = map(json.loads, (tmp_path / "rank_0.jsonl").read_text().splitlines())
    assert list(header) == ["schema", "rank", "host", "dropped"]
    assert span == {"step": 7, "pass": 1, "op": "1F0.2", "start_s": 1.0, "end_s": 2.0}


def test_of_a_step_computed_again_the_last_pass_counts(tmp_path: Path) -> None:
    """Also where the schedule has changed with the failure, and where there was none."""
    timeline = _timeline(tmp_path)
    _do(timeline, 5, "0F0.0", "0F0.1")
    timeline.reach("regroup", None, 5)
    _do(timeline, 5, "0F1.0", "0B1.0")
    _do(timeline, 6, "0F0.0", "0B0.0")
    _do(timeline, 6, "0F0.0", "0B0.0")
    timeline.write()
    steps = read_timelines(tmp_path)
    assert [str(op) for op, _, _ in steps[5][0]] == ["0F1.0", "0B1.0"]
    assert [start for _, start, _ in steps[6][0]] == [13, 15]


def test_an_operation_that_a_failure_cut_off_is_not_told(tmp_path: Path) -> None:
    """It has no end."""
    timeline = _timeline(tmp_path)
    timeline.reach("forward", Op("F", 0, 0, 0), 0)
    timeline.reach("regroup", None, 0)
    timeline.reach("done", Op("F", 0, 1, 0), 0)
    timeline.write()
    assert read_timelines(tmp_path) == {}


def test_only_chosen_steps_are_kept(tmp_path: Path) -> None:
    """Any container of steps chooses."""
    timeline = _timeline(tmp_path, steps=range(2, 4))
    for step in range(6):
        _do(timeline, step, "0F0.0")
    timeline.write()
    assert list(read_timelines(tmp_path)) == [2, 3]


def test_the_buffer_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    """What had no room is counted, in the file too."""
    timeline = _timeline(tmp_path, most=4)
    for step in range(10):
        _do(timeline, step, "0F0.0")
    timeline.write()
    assert list(read_timelines(tmp_path)) == [6, 7, 8, 9]
    assert json.loads((tmp_path / "rank_0.jsonl").read_text().splitlines()[0])["dropped"] == 6


def test_a_folder_that_cannot_be_written_is_no_reason_to_raise(tmp_path: Path) -> None:
    """Training has been done by then."""
    (tmp_path / "file").write_text("")
    assert not _timeline(tmp_path / "file").write()


def test_the_timeline_of_an_earlier_run_is_not_left_for_this_one(tmp_path: Path) -> None:
    """A worker that is killed writes nothing, and must not seem to have taken part."""
    _write(tmp_path, HEADER, SPAN)
    _timeline(tmp_path)
    with pytest.raises(InputError, match="no rank_"):
        read_timelines(tmp_path)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "rank_0.jsonl, line 1: "),
        (["{"], "rank_0.jsonl, line 1: "),
        ([HEADER | {"schema": 9}], "line 1: schema is 9, expected 1"),
        ([HEADER, SPAN, SPAN | {"op": "F"}], "line 3: 'F' is no operation"),
        ([HEADER, SPAN | {"step": "x"}], "line 2: Expected `int`"),
        ([HEADER, SPAN | {"end_s": 0.5}], "line 2: end_s is 0.5, expected start_s 1.0 or more"),
    ],
)
def test_what_is_no_timeline_is_named_by_file_and_line(
    tmp_path: Path, lines: list[object], words: str
) -> None:
    """With what was expected."""
    _write(tmp_path, *lines)
    with pytest.raises(InputError) as caught:
        read_timelines(tmp_path)
    assert words in str(caught.value)


def test_times_of_two_hosts_are_not_mixed(tmp_path: Path) -> None:
    """Their clocks have nothing to do with each other."""
    _write(tmp_path, HEADER, SPAN)
    _write(tmp_path, HEADER | {"rank": 1, "host": "b"}, SPAN, rank=1)
    with pytest.raises(InputError, match="hosts a, b, expected one"):
        read_timelines(tmp_path)
