"""What is allowed: words into levels, and changes while a run goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.guard.levels import Allowed, change_levels, parse_levels


@pytest.mark.parametrize(
    ("words", "levels"),
    [
        ("", set()),
        ("none", set()),
        ("all", {"undo", "S2", "S3", "S4"}),
        ("S2", {"undo", "S2"}),
        ("s2, S3", {"undo", "S2", "S3"}),
    ],
)
def test_words_become_levels(words: str, levels: set[str]) -> None:
    """What may be done may be undone; nothing allowed is nothing done."""
    assert parse_levels(words) == levels


@pytest.mark.parametrize("words", ["S1", "S5", "S2,,S3", "everything", "S2 S3"])
def test_other_words_are_refused(words: str) -> None:
    """The line says what is expected."""
    with pytest.raises(InputError, match=r"expected all, none, or a list of S2, S3, S4$"):
        parse_levels(words)


def test_changed_while_the_run_goes_on(tmp_path: Path) -> None:
    """The last word counts; nonsense in the file changes nothing."""
    (tmp_path / "run.json").write_text("{}")
    allowed = Allowed(tmp_path, "S2")
    assert allowed() == {"undo", "S2"}
    change_levels(tmp_path, "none")
    assert allowed() == frozenset()
    (tmp_path / "act.json").write_text("{")
    os.utime(tmp_path / "act.json", ns=(1, 1))
    assert allowed() == frozenset()
    change_levels(tmp_path, "S2,S3")
    assert allowed() == {"undo", "S2", "S3"}


def test_only_a_run_directory_can_be_changed(tmp_path: Path) -> None:
    """A wrong folder is named, and nothing is written there."""
    with pytest.raises(InputError, match="is no run directory"):
        change_levels(tmp_path, "all")
    assert list(tmp_path.iterdir()) == []
