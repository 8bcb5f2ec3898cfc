"""``holdfast diagnose`` as a person uses it."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import cli


def call(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    """Run the command line and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["holdfast", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code


def write_dump(folder: Path, rank: int, *, calls: int, done: int) -> None:
    """Write what a rank of four has recorded: so many all-reduces, so many of them finished."""
    entries = [
        {
            "record_id": number,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": number,
            "op_id": number,
            "profiling_name": "nccl:all_reduce",
            "state": "completed" if number <= done else "scheduled",
        }
        for number in range(1, calls + 1)
    ]
    config = {"0": {"desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    data = json.dumps({"version": "2.9", "pg_config": config, "entries": entries})
    (folder / f"_dump_{rank}").write_text(data)


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """A folder in which rank 1 did not come, and rank 3 left nothing."""
    for rank, calls in ((0, 5), (1, 4), (2, 5)):
        write_dump(tmp_path, rank, calls=calls, done=4)
    return tmp_path


def test_the_verdict_comes_first(
    dumps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then the evidence, who waits, and whose dump is missing."""
    assert call(["diagnose", str(dumps)], monkeypatch) == 0
    came = "rank 1 did not come to all_reduce 5 of group 0 (default_pg), where ranks 0 and 2 wait"
    assert capsys.readouterr().out.splitlines() == [
        f"rank 1 is to blame: {came}; its last one there was 4",
        "  rank 1 (confidence 0.95)",
        f"    {came}; its last one there was 4",
        "    it has no unfinished operation: its host is stuck outside of communication",
        "2 of 4 ranks wait for others: ranks 0 and 2",
        "missing: no dump of rank 3",
    ]


def test_json_is_one_document_and_nothing_else(
    dumps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Suspects, victims, missing ranks, and those that left a dump."""
    assert call(["diagnose", str(dumps), "--json"], monkeypatch) == 0
    out, err = capsys.readouterr()
    assert (err, out.count("\n")) == ("", 1)
    document = json.loads(out)
    (suspect,) = document.pop("suspects")
    assert document == {"victims": [0, 2], "missing": [3], "world_size": 4, "ranks": [0, 1, 2]}
    assert [suspect[key] for key in ("kind", "ranks", "cause", "victims")] == ["rank", [1], "hang", [0, 2]]
    assert list(suspect) == [
        *("kind", "ranks", "hosts", "link", "function", "cause"),
        *("slowdown", "cost_s", "confidence", "victims", "evidence"),
    ]


def test_a_job_that_does_not_hang_blames_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, with and without --json."""
    for rank in range(4):
        write_dump(tmp_path, rank, calls=4, done=4)
    assert call(["diagnose", str(tmp_path)], monkeypatch) == 0
    assert capsys.readouterr().out == "nobody is to blame: no rank waits for another\n"
    assert call(["diagnose", str(tmp_path), "--json"], monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)["suspects"] == []


def test_a_doubt_is_called_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All four came, and it does not end."""
    for rank in range(4):
        write_dump(tmp_path, rank, calls=5, done=4)
    assert call(["diagnose", str(tmp_path)], monkeypatch) == 0
    out = capsys.readouterr().out
    assert out.startswith("unsure who is to blame, perhaps ranks 0 to 3\n  ranks 0 to 3 (confidence 0.25)\n")


class _Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def test_a_pickle_that_would_run_something_is_one_line(
    dumps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and nothing ran."""
    (dumps / "_dump_3").write_bytes(pickle.dumps({"entries": [_Evil(dumps / "ran")]}, 2))
    assert call(["diagnose", str(dumps)], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"{dumps}/_dump_3: expected a Flight Recorder dump, JSON or pickle: the pickle uses GLOBAL" in err
    assert not (dumps / "ran").exists()


def test_words_of_a_dump_cannot_write_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of operations come from a file of somebody else: what cannot be printed is written out."""
    for rank in range(4):
        write_dump(tmp_path, rank, calls=5, done=4)
        path = tmp_path / f"_dump_{rank}"
        path.write_text(path.read_text().replace("all_reduce", r"\u001b[2J[red]\n"))
    assert call(["diagnose", str(tmp_path)], monkeypatch) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert r"\x1b[2J[red]\n" in out


@pytest.mark.parametrize(
    ("name", "words"), [("nothing", "cannot be read: No such file"), (".", "holds no dumps")]
)
def test_bad_input_is_one_line(
    name: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It names the path and what was expected, with exit code 2."""
    assert call(["diagnose", str(tmp_path / name)], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"holdfast: {tmp_path}")
    assert words in err
