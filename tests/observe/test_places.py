"""Places: files here and at addresses are listed and opened alike, and what is wrong is one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.observe.places import is_address, list_files, opened

ENDINGS = (".json", ".json.gz")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two traces, one of them deeper, and other things."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "rank_0.json").write_text("zero")
    (tmp_path / "deep" / "rank_1.json.gz").write_text("one")
    (tmp_path / "notes.txt").write_text("no trace")
    os.mkfifo(tmp_path / "rank_2.json")
    return tmp_path


@pytest.mark.parametrize(
    ("place", "expected"),
    [("s3://bucket/x", True), ("gs+https://y", True), ("/tmp/x", False), ("C:/x", False), ("a:b", False)],
)
def test_an_address_is_told_from_a_path(place: str, expected: bool) -> None:
    """By its protocol."""
    assert is_address(place) is expected


def test_files_here(folder: Path) -> None:
    """In folders of folders; a pipe, which may never end, is none, and neither is what is not there."""
    expected = [str(folder / "deep" / "rank_1.json.gz"), str(folder / "rank_0.json")]
    assert list_files(str(folder), ENDINGS) == expected
    assert list_files(str(folder / "rank_0.json"), ENDINGS) == expected[1:]
    assert list_files(str(folder / "absent.json"), ENDINGS) == []
    with opened(expected[1]) as stream:
        assert stream.read() == b"zero"


def test_files_at_an_address(folder: Path) -> None:
    """The same by fsspec."""
    pytest.importorskip("fsspec")
    (folder / "rank_2.json").unlink()
    found = list_files(f"file://{folder}", ENDINGS)
    assert [place.rpartition("/")[2] for place in found] == ["rank_1.json.gz", "rank_0.json"]
    assert all(is_address(place) for place in found)
    with opened(found[1]) as stream:
        assert stream.read() == b"zero"


@pytest.mark.parametrize("place", ["file:///nowhere/rank_0.json", "nonsense://bucket/rank_0.json"])
def test_an_address_that_leads_nowhere_is_one_line(place: str) -> None:
    """With the address in it."""
    pytest.importorskip("fsspec")
    with pytest.raises(InputError, match=f"^{place}: cannot be read: ") as caught, opened(place):
        pass
    assert "\n" not in str(caught.value)


def test_without_fsspec_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only for addresses."""
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(InputError, match=r"pip install 'holdfast\[remote\]'"):
        list_files("s3://bucket/traces", ENDINGS)
