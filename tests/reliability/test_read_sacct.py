"""What sacct -P writes: which rows become attempts, and what becomes of the others."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from readersamples import at, cells, parse

from holdfast.errors import InputError
from holdfast.reliability import delimited
from holdfast.reliability.sacct import read_sacct
from holdfast.reliability.tables import MOST_TOLD

HEADER = "JobID|State|Start|End"


@pytest.mark.parametrize("delimiter", ["|", "|#", ",", ";", "\t", "^", "\x01", "¦", "::"])
def test_any_delimiter_and_order_is_read(delimiter: str) -> None:
    """The header says what stands where and what is in between."""
    rows = [
        ["End", "User", "JobID", "State", "Start"],
        ["2024-01-02T00:00:00", "ann", "7", "COMPLETED", "2024-01-01T12:00:00"],
    ]
    reading = parse("".join(delimiter.join(row) + "\n" for row in rows))
    assert cells(reading, "job", "user", "state", "start", "end") == [
        ("7", "ann", "COMPLETED", at("2024-01-01T12:00:00"), at("2024-01-02T00:00:00"))
    ]


def test_cells_with_line_breaks_are_joined() -> None:
    """A row goes on until it has as many delimiters as the header."""
    text = "JobID|JobName|Comment|State\n1|a\nb\n\nc|one\n|FAILED\n2|x|y|COMPLETED\n"
    reading = parse(text)
    assert cells(reading, "job", "name", "state") == [("1", "a b  c", "FAILED"), ("2", "x", "COMPLETED")]
    assert (reading.rows, reading.broken) == (2, 0)


def test_a_line_break_in_the_last_cell_belongs_to_the_row_before() -> None:
    """Where the last column is one of free text, what follows a row is more of it."""
    reading = parse("JobID|State|Comment\n1|FAILED|first\nsecond\n2|FAILED|\n")
    assert cells(reading, "job") == [("1",), ("2",)]
    assert reading.broken == 0


def test_rows_with_too_few_or_many_cells_are_told_with_their_line() -> None:
    """A cut row does not take the good one that follows with it."""
    reading = parse(f"{HEADER}\n1|FAILED|\n2|FAILED||\n3|FAILED|||\ngarbage\n4|FAILED||\n")
    assert cells(reading, "job") == [("2",), ("4",)]
    assert [(one.place, one.why) for one in reading.told] == [
        ("jobs.txt, row 2", "has 3 cells, expected 4"),
        ("jobs.txt, row 4", "has 5 cells, expected 4"),
        ("jobs.txt, row 5", "has 1 cells, expected 4"),
    ]


def test_prose_after_a_header_is_told_and_not_gathered_into_one_row() -> None:
    """However long it is: a thousand lines are the most that belong together."""
    reading = parse(f"{HEADER}\n" + "once upon a time\n\n" * 100_000 + "1|FAILED||\n")
    assert cells(reading, "job") == [("1",)]
    assert (reading.broken, reading.told[1].place) == (200, "jobs.txt, row 1002")


def test_broken_text_harms_only_its_cell() -> None:
    """Bytes that are no UTF-8 are replaced."""
    reading = parse(b"JobID|JobName|State\n1|caf\xe9|FAILED\n2|\xff\xfe\x80|COMPLETED\n")
    assert cells(reading, "job", "name") == [("1", "caf�"), ("2", "���")]


def test_steps_are_left_out_and_counted_apart() -> None:
    """They are neither attempts nor broken."""
    text = "JobID|State\n1|FAILED\n1.batch|FAILED\n1.extern|FAILED\n1.0|FAILED\n2_3.0|FAILED\n2_3|FAILED\n"
    reading = parse(text)
    assert cells(reading, "job") == [("1",), ("2_3",)]
    assert (reading.rows, reading.broken, reading.left_out) == (6, 0, 4)


def test_tasks_of_arrays_and_parts_of_jobs_keep_their_ids() -> None:
    """Tasks that wait come as one row."""
    reading = parse("JobID|State\n12_4|FAILED\n12_[5-9%2]|PENDING\n13+1|COMPLETED\n")
    assert cells(reading, "job") == [("12_4",), ("12_[5-9%2]",), ("13+1",)]


def test_rows_with_one_id_are_attempts_in_the_order_of_their_starts() -> None:
    """Whatever their order in the file; one that waits comes last."""
    text = (
        f"{HEADER}\n5|PENDING|Unknown|Unknown\n5|NODE_FAIL|2024-01-03T00:00:00|2024-01-04T00:00:00\n"
        "6|COMPLETED|2024-01-01T00:00:00|2024-01-02T00:00:00\n5|REQUEUED|2024-01-01T00:00:00|2024-01-02T00:00:00\n"
    )
    assert cells(parse(text), "job", "attempt", "state") == [
        ("5", 3, "PENDING"),
        ("5", 2, "NODE_FAIL"),
        ("6", 1, "COMPLETED"),
        ("5", 1, "REQUEUED"),
    ]


def test_outputs_put_together_count_an_attempt_once() -> None:
    """Headers in the middle and second copies are left out; the copy that knows the end stays."""
    text = (
        f"{HEADER}\n5|RUNNING|2024-01-01T00:00:00|Unknown\n"
        f"{HEADER}\n5|FAILED|2024-01-01T00:00:00|2024-01-02T00:00:00\n6|FAILED||\n6|FAILED||\n"
    )
    reading = parse(text)
    assert cells(reading, "job", "attempt", "state") == [
        ("5", 1, "FAILED"),
        ("6", 1, "FAILED"),
        ("6", 2, "FAILED"),
    ]
    assert reading.left_out == 2


def test_jobs_of_two_clusters_are_told_apart() -> None:
    """Each cluster counts from 1, so the same number is another job."""
    reading = parse("Cluster|JobID|State\na|1|FAILED\nb|1|FAILED\n")
    assert cells(reading, "job", "attempt") == [("a:1", 1), ("b:1", 1)]


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
def test_line_ends_and_marks_of_other_systems_do_no_harm(ending: str) -> None:
    """Byte order marks, trailing delimiters (-p) and blank lines neither."""
    end = ending or "\n"
    text = f"\ufeff{end}JobID|State|{end}1|FAILED|{end}{end}2|COMPLETED|{ending}"
    reading = parse(text)
    assert cells(reading, "job", "state") == [("1", "FAILED"), ("2", "COMPLETED")]
    assert (reading.rows, reading.broken) == (2, 0)


def test_quoted_cells_of_a_spreadsheet_are_read() -> None:
    """A comma inside of quotes is no delimiter, a line break no end; rows that do not fit are told."""
    text = '"JobID","NodeList","State"\n"1","gpu[1-2,5]","FAILED"\n"2","a\nb","COMPLETED"\n"3","x"\n'
    reading = parse(text)
    assert cells(reading, "job", "node_list", "state") == [
        ("1", "gpu[1-2,5]", "FAILED"),
        ("2", "a\nb", "COMPLETED"),
    ]
    assert [(one.place, one.why) for one in reading.told] == [("jobs.txt, row 5", "has 2 cells, expected 3")]


def test_many_broken_rows_are_counted_and_the_first_told() -> None:
    """What is kept is bounded, what is counted is not."""
    reading = parse("JobID|State\n" + "x|FAILED\n" * 500 + "1|FAILED|\n" * 500)
    assert (reading.rows, reading.broken, len(reading.told)) == (1000, 1000, MOST_TOLD)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("123|COMPLETED|2024-01-01T00:00:00\n", "sacct -a -D -X -P"),
        ("project|123|COMPLETED\n", "sacct -a -D -X -P"),
        ("Color|Size\n1|2\n", "no column JobID"),
        ("", "expected a header"),
        ("JobID\n1\n", "expected a header"),
        ("\0\1\2|JobID\n", "is not text"),
    ],
)
def test_a_file_without_a_header_is_refused_with_the_call_to_make(text: str, message: str) -> None:
    """One line says what is wrong."""
    with pytest.raises(InputError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("jobs.txt")


def test_a_zone_that_does_not_exist_is_refused() -> None:
    """The message has an example of one that does."""
    with pytest.raises(InputError, match="Europe/Berlin"):
        parse(f"{HEADER}\n", timezone="Mars/Olympus")


def test_files_that_cannot_be_opened_are_refused(tmp_path: Path) -> None:
    """A missing file and a folder each say what they are."""
    with pytest.raises(InputError, match="No such file"):
        read_sacct(tmp_path / "none.txt")
    with pytest.raises(InputError, match="is a folder"):
        read_sacct(tmp_path)


@pytest.mark.parametrize("size", [7, 64, 1000])
@pytest.mark.parametrize("delimiter", ["|", "|#"])
def test_the_size_of_the_pieces_does_not_show(
    size: int, delimiter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, cells with line breaks and numbers of lines come out the same however a file is cut."""
    rows = ["JobID|JobName|State"]
    for number in range(100):
        rows.append(f"{number}|a\nb|FAILED" if number % 7 == 0 else f"{number}|x|COMPLETED")
        rows += ["cut|"] * (number % 50 == 0)
    file = tmp_path / "jobs.txt"
    file.write_text("\n".join(rows).replace("|", delimiter) + "\n")
    whole = read_sacct(file)
    monkeypatch.setattr(delimited, "PIECE", size)
    monkeypatch.setattr("holdfast.reliability.rawtables._MOST_HEADER", 40)
    pieces = read_sacct(file)
    assert whole.table.height == 100
    assert whole.broken == 2
    assert pieces.table.equals(whole.table)
    assert pieces.told == whole.told
    assert whole.table.filter(pl.col("name") == "a b").height == 15
