"""Cutting a stream into lines: however it arrives, the real lines are the same."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.guard.lines import Lines

STREAMS = st.lists(
    st.sampled_from([b"a", b"b ", b"\n", b"\r", b"\r\n", b"\0", b"\xc3", b"\xbc"]), max_size=40
)
LONGEST_BYTES = 64 * 1024


def _cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[low:high] for low, high in itertools.pairwise(places)]


def _lines(chunks: list[bytes], every_s: float) -> list[bytes]:
    lines, found = Lines(), []
    for number, chunk in enumerate(chunks):
        found += lines.feed(chunk, number * every_s)
    return found + lines.close()


def _real_lines(data: bytes) -> list[bytes]:
    *whole, rest = data.replace(b"\r\n", b"\n").split(b"\n")
    last = [line.rpartition(b"\r")[2] for line in whole]
    rest = rest.removesuffix(b"\r").rpartition(b"\r")[2]
    return last + ([rest] if rest else [])


@given(STREAMS, st.lists(st.integers(0, 200)))
def test_any_split_of_a_stream_gives_the_same_lines(pieces: list[bytes], cuts: list[int]) -> None:
    """With no bar due (all at one moment, after a first bar) only the real lines are passed on."""
    data = b"".join(pieces)
    # The bar of the first chunk is decided with the byte after it: let that be no line's end.
    assert _lines([b"bar\r", b"|", *_cut(data, cuts)], 0.0) == [b"bar", *_real_lines(b"|" + data)]


@given(STREAMS)
def test_with_every_bar_due_nothing_but_blanks_is_left_out(pieces: list[bytes]) -> None:
    """All text comes through, in order, when bars are slower than one a second."""
    data = b"".join(pieces)
    chunks = [data[place : place + 1] for place in range(len(data))]
    visible = data.replace(b"\r", b"").replace(b"\n", b"").replace(b" ", b"")
    assert b"".join(_lines(chunks, 2.0)).replace(b" ", b"") == visible


def test_a_bar_is_shown_once_a_second() -> None:
    """tqdm writes its bar ten times a second and more; the line at its end always comes."""
    lines, shown = Lines(), []
    for tick in range(100):
        shown += lines.feed(b"\r %3d%%" % tick, tick * 0.1)
    shown += lines.feed(b"\r100%\n", 10.0)
    assert len(shown) in (10, 11)
    assert shown[-1] == b"100%"


def test_a_windows_line_end_cut_in_two_is_one_end() -> None:
    """The carriage return waits for the next byte."""
    lines = Lines()
    assert lines.feed(b"one\r", 0.0) == []
    assert lines.feed(b"\ntwo\r", 0.0) == [b"one"]
    assert lines.feed(b"\n", 0.0) == [b"two"]
    assert lines.close() == []


@pytest.mark.parametrize("data", [b"\n", b"\n\n", b"a\n\nb\n"])
def test_empty_lines_are_lines(data: bytes) -> None:
    """They are what the worker printed."""
    assert Lines().feed(data, 0.0) == data.split(b"\n")[:-1]


def test_blank_bars_are_not_worth_showing() -> None:
    """tqdm clears its line with blanks; that does not use up the second's bar."""
    assert Lines().feed(b"   \r\rbar\rx", 0.0) == [b"bar"]


def test_bytes_that_are_no_text_pass_unchanged() -> None:
    """NUL and broken UTF-8 are the worker's business."""
    assert Lines().feed(b"\0\xff\xfe\n", 0.0) == [b"\0\xff\xfe"]


@given(st.lists(st.integers(1, 3 * LONGEST_BYTES), min_size=1, max_size=6))
def test_a_line_without_end_is_cut_and_nothing_of_it_lost(sizes: list[int]) -> None:
    """Memory stays bounded, and the pieces join to the whole."""
    lines, found = Lines(), []
    for size in sizes:
        found += lines.feed(b"x" * size, 0.0)
        assert len(lines._rest) <= LONGEST_BYTES
    assert b"".join(found + lines.close()) == b"x" * sum(sizes)


def test_the_longest_line_may_end_in_both_bytes() -> None:
    """A line of exactly the longest size is one line, also when its end comes in two pieces."""
    lines = Lines()
    found = lines.feed(b"x" * LONGEST_BYTES + b"\r", 0.0) + lines.feed(b"\n", 0.0)
    assert [len(line) for line in found] == [LONGEST_BYTES]
