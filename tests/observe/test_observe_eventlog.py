"""Reading an event log: every whole line, whatever happened to the rest."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import EVENTS, STAMP
from holdfast.errors import InputError
from holdfast.guard.eventlog import encode
from holdfast.observe.eventlog import EventLogContent, read_events, read_run
from holdfast.values import Record

LINES = [encode(STAMP, event) for event in EVENTS]


def _read(data: bytes) -> EventLogContent:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "events.jsonl"
        file.write_bytes(data)
        return read_events(file)


@given(st.lists(st.integers(0, len(LINES) - 1), max_size=8), st.integers(0, 100_000))
def test_any_prefix_of_a_log_keeps_its_whole_lines(numbers: list[int], cut: int) -> None:
    """The lines before the cut come back, and the piece of a line after them is counted."""
    data = b"".join(LINES[number] for number in numbers)
    prefix = data[: cut % (len(data) + 1)]
    whole = prefix.count(b"\n")
    assert _read(prefix) == EventLogContent(
        records=[Record(stamp=STAMP, event=EVENTS[number]) for number in numbers[:whole]],
        cut=0 if prefix.endswith(b"\n") or not prefix else 1,
    )


@given(st.lists(st.binary(max_size=60) | st.sampled_from(LINES), max_size=6))
def test_garbage_between_lines_is_named_and_costs_only_itself(lines: list[bytes]) -> None:
    """Nothing in a log makes its reader raise, and each good line is found."""
    lines = [line.replace(b"\n", b"") for line in lines]
    content = _read(b"".join(line + b"\n" for line in lines))
    good = [line for line in lines if line + b"\n" in LINES]
    assert [encode(record.stamp, record.event)[:-1] for record in content.records] == good
    assert len(content.broken) == sum(1 for line in lines if line.strip()) - len(good)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"schema": 2}', "missing required field"),
        (LINES[0].replace(b'"schema":1', b'"schema":2'), "schema is 2, expected at most 1"),
        (LINES[0].replace(b"run_started", b"run_imagined"), "Invalid value 'run_imagined'"),
        (b"\xff\xfe\n", ""),
        pytest.param(
            b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            "",
            id="deep",
        ),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_its_place(line: bytes, why: str) -> None:
    """File, number and reason; the lines around it are kept."""
    content = _read(LINES[0] + line.removesuffix(b"\n") + b"\n" + LINES[1])
    assert [record.event for record in content.records] == list(EVENTS[:2])
    assert len(content.broken) == 1
    assert content.broken[0].startswith("events.jsonl:2: ")
    assert why in content.broken[0]


def test_fields_of_a_later_version_of_the_same_schema_are_passed_over() -> None:
    """A field that this version does not know does no harm."""
    line = LINES[0].replace(b'{"schema"', b'{"mood":"good","schema"')
    assert _read(line).records == [Record(stamp=STAMP, event=EVENTS[0])]


def test_a_run_is_the_logs_of_its_nodes(tmp_path: Path) -> None:
    """Node 0 first; cut and broken lines are summed."""
    (tmp_path / "events.jsonl").write_bytes(LINES[0] + b"half")
    (tmp_path / "events.node1.jsonl").write_bytes(LINES[1] + b"bad\n")
    content = read_run(tmp_path)
    assert [record.event for record in content.records] == list(EVENTS[:2])
    assert content.cut == 1
    assert [line[:22] for line in content.broken] == ["events.node1.jsonl:2: "]


def test_the_nodes_of_a_run_come_in_their_order(tmp_path: Path) -> None:
    """By number, not by spelling."""
    nodes = [0, 1, 2, 10]
    for node in nodes:
        name = "events.jsonl" if node == 0 else f"events.node{node}.jsonl"
        (tmp_path / name).write_bytes(encode(msgspec.structs.replace(STAMP, node=node), EVENTS[0]))
    assert [record.stamp.node for record in read_run(tmp_path).records] == nodes


def test_a_folder_without_logs_is_bad_input(tmp_path: Path) -> None:
    """The line names the folder and what was expected."""
    for folder in (tmp_path, tmp_path / "gone"):
        with pytest.raises(InputError) as caught:
            read_run(folder)
        assert str(caught.value) == f"{folder}: no events.jsonl in it, expected a run directory"


def test_a_log_that_cannot_be_opened_is_bad_input(tmp_path: Path) -> None:
    """One line with the file and the reason."""
    (tmp_path / "events.jsonl").mkdir()
    with pytest.raises(InputError, match=r"events\.jsonl: cannot be read: Is a directory"):
        read_run(tmp_path)
