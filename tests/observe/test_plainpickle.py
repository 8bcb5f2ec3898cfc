"""Pickles of plain data are read; whatever could do more is refused, and nothing runs."""

from __future__ import annotations

import datetime
import os
import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.observe.plainpickle import read_plain

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.tuples(inner, inner, inner, inner)
        | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=20,
)


class Evil:
    """Runs a command wherever it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
def test_plain_data_is_read_as_python_reads_it(value: Any, protocol: int) -> None:
    """In every binary protocol, shared strings included."""
    assert read_plain(pickle.dumps([value, value], protocol)) == [value, value]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_that_calls_something_is_refused_and_nothing_runs(tmp_path: Path, protocol: int) -> None:
    """The file that its command would make is not there; Python's own unpickler does make it."""
    path = tmp_path / "ran"
    data = pickle.dumps({"entries": [Evil(path)]}, protocol)
    with pytest.raises(ValueError, match="expected plain data"):
        read_plain(data)
    assert not path.exists()
    pickle.loads(data)  # noqa: S301 - ours, to see that the command would have worked.
    assert path.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02cos\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02(ios\nsystem\n.",
        b"\x80\x02U\x01aQ.",
        b"\x80\x02Pevil\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02}b.",
    ],
    ids=["GLOBAL", "STACK_GLOBAL", "INST", "SHORT_BINSTRING", "PERSID", "EXT1", "BUILD"],
)
def test_every_way_to_reach_code_is_refused(data: bytes) -> None:
    """Names, persistent ids, extensions and state of objects are unknown words."""
    with pytest.raises(ValueError, match="expected plain data"):
        read_plain(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"a.",
        b"\x80\x02X" + struct.pack("<I", 0xFFFFFFFF) + b"a.",
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"a.",
        b"\x80\x02B" + struct.pack("<I", 0xFFFFFFFF) + b"a.",
        b"\x80\x02\x8b" + struct.pack("<i", 0x7FFFFFFF) + b"\xff.",
        b"\x80\x02\x8a\xff" + b"\xff" * 255 + b".",
        b"\x80\x02" + b"]" * 2000 + b".",
    ],
    ids=["BINUNICODE8", "BINUNICODE", "BINBYTES8", "BINBYTES", "LONG4", "LONG1", "many"],
)
def test_a_bomb_is_refused_before_it_takes_memory(data: bytes) -> None:
    """A length that the file does not have, a number of many digits, more values than a dump has."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="the pickle"):
            read_plain(data, most_values=1000)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_large_memo_index_takes_no_memory() -> None:
    """It is a key; Python's own unpickler would make a table of that length."""
    tracemalloc.start()
    try:
        assert read_plain(b"\x80\x02X\x01\x00\x00\x00ar\xf0\xff\xff\xff.") == "a"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_nested_tuples_are_no_key() -> None:
    """Their hash doubles with every level: fifty levels in a hundred bytes would never end."""
    doubled = b"\x80\x02})" + b"q\x00h\x00\x86" * 50 + b"Ns."
    with pytest.raises(ValueError, match="a key that is no string"):
        read_plain(doubled)


def test_deep_nesting_is_no_recursion() -> None:
    """A hundred thousand lists in each other are read, and let go of."""
    value = read_plain(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".")
    depth = 0
    while value:
        value, depth = value[0], depth + 1
    assert depth == 99_999


@given(PLAIN, st.data())
def test_a_pickle_cut_off_anywhere_is_refused(value: Any, data: st.DataObject) -> None:
    """With ValueError, whatever is left of it."""
    whole = pickle.dumps(value, 2)
    with pytest.raises(ValueError, match="the pickle"):
        read_plain(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """No other error ever leaves."""
    said = "the pickle is fine"
    try:
        read_plain(b"\x80\x02" + data, most_values=1000)
    except ValueError as error:
        said = str(error)
    assert said.startswith("the pickle ")


def test_an_object_of_the_standard_library_is_refused() -> None:
    """A date is no plain data, harmless as it is."""
    with pytest.raises(ValueError, match="uses GLOBAL, expected plain data"):
        read_plain(pickle.dumps(datetime.date(2026, 1, 1), 2))
