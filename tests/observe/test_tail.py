"""Following a file of lines: nothing twice, nothing in halves, nothing left behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.observe.tail import Piece, Place, read_on

START = Place()


def _read(file: Path, place: Place, **limits: int) -> Piece:
    return read_on(file, place, **({"most_lines": 100, "most_bytes": 1 << 20, "longest": 1 << 20} | limits))


def _data(piece: Piece) -> list[bytes]:
    return [line.data for line in piece.lines]


def test_a_file_that_is_not_there_yet_has_no_lines(tmp_path: Path) -> None:
    """It is found as soon as it is there."""
    file = tmp_path / "log"
    piece = _read(file, START)
    assert (piece.lines, piece.place, piece.is_all) == ([], START, True)
    file.write_bytes(b"a\n")
    assert _data(_read(file, piece.place)) == [b"a"]


def test_a_line_without_an_end_waits_for_it(tmp_path: Path) -> None:
    """Its writer may be in the middle of it; it is read once, and whole."""
    file = tmp_path / "log"
    file.write_bytes(b"one\ntw")
    first = _read(file, START)
    assert (_data(first), first.place.offset) == ([b"one"], 4)
    with file.open("ab") as opened:
        opened.write(b"o\nthree\n")
    second = _read(file, first.place)
    assert _data(second) == [b"two", b"three"]
    assert _read(file, second.place).lines == []


def test_limits_hold_and_every_line_knows_its_end(tmp_path: Path) -> None:
    """Whoever stops in between goes on there."""
    file = tmp_path / "log"
    file.write_bytes(b"".join(b"%03d\n" % number for number in range(10)))
    few = _read(file, START, most_lines=4)
    assert (_data(few), few.is_all) == ([b"000", b"001", b"002", b"003"], False)
    assert _data(_read(file, few.lines[1].place))[0] == b"002"
    small = _read(file, START, most_bytes=7)
    assert (_data(small), small.is_all) == ([b"000", b"001"], False)
    assert _data(_read(file, START, most_bytes=1)) == [b"000"]


def test_a_line_that_is_too_long_is_left_out(tmp_path: Path) -> None:
    """It holds up nothing, however many pieces it is read in; while it has no end it is waited for."""
    file = tmp_path / "log"
    file.write_bytes(b"a\n" + b"x" * 900_000)
    first = _read(file, START, longest=100)
    assert (_data(first), first.too_long, first.place.offset) == ([b"a"], 0, 2)
    with file.open("ab") as opened:
        opened.write(b"x\nb\n")
    second = _read(file, first.place, longest=100)
    assert (_data(second), second.too_long, second.place.offset) == ([b"b"], 1, 900_006)


def test_a_file_that_was_cut_or_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    """What is known already is for others to find out."""
    file = tmp_path / "log"
    file.write_bytes(b"one\ntwo\n")
    place = _read(file, START).place
    os.truncate(file, 4)
    assert _data(_read(file, place)) == [b"one"]
    other = tmp_path / "other"
    other.write_bytes(b"1\n2\n3\n4\n5\n")
    other.rename(file)
    assert _data(_read(file, place)) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_folder_or_a_pipe_in_its_place_is_no_reason_to_stop(tmp_path: Path) -> None:
    """Nothing is read, and nothing is waited for."""
    assert _read(tmp_path, START).lines == []
    os.mkfifo(tmp_path / "pipe")
    assert _read(tmp_path / "pipe", START).lines == []


@settings(max_examples=40)
@given(
    writes=st.lists(st.text(alphabet="ab\n", max_size=12).map(str.encode), max_size=12),
    most_lines=st.integers(1, 4),
    most_bytes=st.integers(1, 10),
)
def test_whatever_is_written_is_read_once(writes: list[bytes], most_lines: int, most_bytes: int) -> None:
    """In whatever pieces it is written and read."""
    place, found = START, []
    with tempfile.NamedTemporaryFile() as opened:
        for data in writes:
            opened.write(data)
            opened.flush()
            is_all = False
            while not is_all:
                piece = _read(Path(opened.name), place, most_lines=most_lines, most_bytes=most_bytes)
                place, is_all = piece.place, piece.is_all
                found += _data(piece)
    assert found == b"".join(writes).split(b"\n")[:-1]
