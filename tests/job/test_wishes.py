"""The two files between a guard and its launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.job.wishes import Granted, read_granted, read_wish, write_granted, write_wish
from holdfast.membership import Arranged

WISH = Arranged(number=3, speeds={5: 0.5}, moves=[(1, 2), (2, 1)])
GRANTED = Granted(
    generation=4,
    wish=3,
    version=120,
    places={0: 1, 1: 0},
    dp=2,
    pp=1,
    microbatches=8,
    is_shared_by_stage=True,
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """The last word of each."""
    assert (read_wish(tmp_path), read_granted(tmp_path)) == (None, None)
    assert write_wish(tmp_path, WISH)
    assert write_granted(tmp_path, GRANTED)
    assert (read_wish(tmp_path), read_granted(tmp_path)) == (WISH, GRANTED)


@pytest.mark.parametrize("text", ["", "{", '{"type": "arranged"}', '{"number": "x"}'])
def test_nonsense_is_no_wish(tmp_path: Path, text: str) -> None:
    """Whatever lies there, the launcher goes on."""
    (tmp_path / "wish.json").write_text(text)
    assert read_wish(tmp_path) is None


def test_a_folder_that_is_gone_is_not_written_to(tmp_path: Path) -> None:
    """Nothing is raised: nothing is changed either."""
    assert not write_wish(tmp_path / "gone", WISH)
