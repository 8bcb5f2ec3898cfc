"""Files of a run directory that change under the reader's hands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.observe.tail import Place, read_on
from holdfast.serve.web.inside import open_file, open_folder, path_of


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory with one log."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "events.jsonl").write_text("ours\n")
    (tmp_path / "secret").write_text("theirs\n")
    return folder


def test_what_was_opened_is_read_whatever_takes_its_place(run_dir: Path) -> None:
    """Between the look and the reading a link may come, or a pipe, for the file or for the whole folder."""
    file = run_dir / "events.jsonl"
    with open_folder(run_dir) as folder:
        with open_file(folder, file.name) as fd:
            assert fd is not None
            file.unlink()
            os.mkfifo(file)
            piece = read_on(path_of(fd), Place(), most_lines=9, most_bytes=99, longest=99)
        assert [line.data for line in piece.lines] == [b"ours"]
        run_dir.rename(run_dir.with_name("away"))
        run_dir.symlink_to(run_dir.parent)
        with open_file(folder, "secret") as fd:
            assert fd is None


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "nothing"])
def test_only_regular_files_are_opened(run_dir: Path, kind: str) -> None:
    """And nobody waits for whoever writes into a pipe."""
    match kind:
        case "link":
            (run_dir / "x").symlink_to(run_dir / "events.jsonl")
        case "pipe":
            os.mkfifo(run_dir / "x")
        case "folder":
            (run_dir / "x").mkdir()
    with open_folder(run_dir) as folder, open_file(folder, "x") as fd:
        assert fd is None


def test_a_folder_that_is_a_link_is_not_opened(run_dir: Path, tmp_path: Path) -> None:
    """Nor is anything in it."""
    (tmp_path / "link").symlink_to(run_dir)
    with open_folder(tmp_path / "link") as folder, open_file(folder, "events.jsonl") as fd:
        assert (folder, fd) == (None, None)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with open_folder(run_dir) as folder, open_file(folder, "events.jsonl") as fd:
        assert fd is not None
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
