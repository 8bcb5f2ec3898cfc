"""Tables of collective calls: read as they are, or refused with their row."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.observe.calls import read_calls


def _file(folder: Path, text: str, name: str = "calls.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_calls_are_read_by_rank_with_what_tells_them_apart(tmp_path: Path) -> None:
    """Operation, bytes and group make the kind; times come in any unit."""
    path = _file(tmp_path, "rank,time_us,op,bytes\n0,1000,all_reduce,4\n1,5,barrier,\n0,2000,all_reduce,8\n")
    calls = read_calls(path)
    assert calls is not None
    assert [(call.time_s, call.kind) for call in calls[0]] == [
        (0.001, ("all_reduce", "4")),
        (0.002, ("all_reduce", "8")),
    ]
    assert [call.kind for call in calls[1]] == [("barrier",)]


def test_json_lines_are_read_too(tmp_path: Path) -> None:
    """As FALCON's shim writes them: a type and a time."""
    path = _file(tmp_path, '{"time_s": 1.5, "type": 3}\n{"time_s": 2.5, "type": 2}\n', "calls.jsonl")
    calls = read_calls(path)
    assert calls is not None
    assert [call.kind for call in calls[0]] == [("3",), ("2",)]


def test_a_table_of_step_times_is_none_of_calls(tmp_path: Path) -> None:
    """It is left to who reads those."""
    assert read_calls(_file(tmp_path, "step,duration_s\n1,2.0\n")) is None


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("0,all_reduce\nx,all_reduce\n", "row 3: time_s is 'x', expected a number"),
        ("0,all_reduce\nnan,all_reduce\n", "row 3: time_s is nan, expected a finite number"),
        ("2,all_reduce\n1,all_reduce\n", "row 3: time is 1 s after 2 s"),
        ("0,all_reduce\n1,\n", "row 3: no time or no operation"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_row(tmp_path: Path, rows: str, words: str) -> None:
    """One line that names the file, the row and what was expected."""
    with pytest.raises(InputError, match=words):
        read_calls(_file(tmp_path, "time_s,op\n" + rows))
