"""A checkpoint is there whole or not at all, whenever its writer dies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.errors import InputError
from holdfast.job import checkpoint
from holdfast.job.checkpoint import Description, draft_of, finish, read_description, read_stage, write_stage


def write(folder: Path, step: int) -> None:
    """Write a whole checkpoint of two stages."""
    for stage in range(2):
        write_stage(folder, stage, {"stage": stage, "step": step, "tensor": torch.full((2,), float(step))})
    finish(folder, Description(step=step, stages=2, exact=True))


def step_of(folder: Path) -> int:
    """Return the step of a checkpoint, all parts of which must be of it."""
    step = read_description(folder).step
    for stage in range(2):
        content = read_stage(folder, stage)
        assert (content["stage"], content["step"]) == (stage, step)
        assert content["tensor"].tolist() == [float(step)] * 2
    return step


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """A checkpoint comes back, a later one takes its place, and nothing is left beside it."""
    for step in (3, 5):
        write(tmp_path / "c", step)
        assert step_of(tmp_path / "c") == step
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


class _DiedError(Exception):
    """Stands for the death of the writer."""


@pytest.mark.parametrize("call", range(12))
def test_writer_that_dies_anywhere_leaves_a_whole_checkpoint_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """At every rename, sync and write: what can be read is the old one or the new one, and a retry works."""
    folder = tmp_path / "c"
    write(folder, 3)
    calls = iter(range(100))
    for owner, name in ((os, "fsync"), (Path, "rename"), (Path, "write_bytes"), (Path, "mkdir")):
        _fail_at(monkeypatch, owner, name, calls, call)
    try:
        write(folder, 5)
    except _DiedError:
        monkeypatch.undo()
        if folder.exists():
            assert step_of(folder) in (3, 5)
        write(folder, 5)
    assert step_of(folder) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def _fail_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: Any, number: int) -> None:
    original = getattr(owner, name)

    def failing(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            raise _DiedError
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)


def test_finish_may_be_repeated(tmp_path: Path) -> None:
    """Whoever does it after the generation changed finds it done."""
    write(tmp_path / "c", 3)
    finish(tmp_path / "c", Description(step=3, stages=2, exact=True))
    assert step_of(tmp_path / "c") == 3


def test_draft_is_no_checkpoint(tmp_path: Path) -> None:
    """Before it is finished nothing has the name."""
    write_stage(tmp_path / "c", 0, {})
    assert not (tmp_path / "c").exists()
    names = sorted(path.name for path in draft_of(tmp_path / "c").iterdir())
    assert names == ["stage_0.pt", "stage_0.sha256"]


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    """A file with code in it is refused, and its code does not run."""

    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "c").mkdir()
    torch.save({"module": Bomb()}, checkpoint.stage_file(tmp_path / "c", 0))
    with pytest.raises(InputError, match=r"stage_0\.pt cannot be read"):
        read_stage(tmp_path / "c", 0)
    assert not (tmp_path / "ran").exists()
