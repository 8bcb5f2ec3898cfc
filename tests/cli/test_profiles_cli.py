"""``holdfast diagnose`` of a folder of profiles: the guilty rank and function, or one line."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from clicalls import call, document

RANKS = 8


def trace(rank: int, *, load_ms: float = 2.0, steps: int = 5) -> dict[str, Any]:
    """Steps of a rank: load, compute, reduce; all take as long as the slowest, which loads for 30 ms."""
    events: list[dict[str, Any]] = []
    number = 1
    at_us = 1000.0 * rank  # Clocks differ.

    def add(name: str, category: str, ms: float, thread: int = 1, args: Any = None) -> None:
        events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 1,
                "tid": thread,
                "ts": at_us,
                "dur": 1000 * ms,
                "args": args,
            }
        )

    add(
        "train.py(1): main", "python_function", 100.0 * steps, args={"Python id": 1, "Python parent id": None}
    )
    for _ in range(steps):
        number += 1
        add(
            "data.py(7): __getitem__",
            "python_function",
            load_ms,
            args={"Python id": number, "Python parent id": 1},
        )
        at_us += 1000 * load_ms
        add("aten::mm", "cpu_op", 50.0)
        at_us += 50_000
        add("gloo:all_reduce", "user_annotation", 50.0 - load_ms, thread=2)
        at_us += 1000 * (50.0 - load_ms)
    groups = [{"pg_name": "0", "pg_desc": "mesh_dp", "ranks": list(range(RANKS))}]
    told = {"rank": rank, "world_size": RANKS, "pg_config": groups}
    return {"distributedInfo": told, "traceEvents": events}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Traces of eight ranks, of which rank 5 loads for 30 ms and rank 6 is missing."""
    for rank in range(RANKS):
        if rank != 6:
            text = json.dumps(trace(rank, load_ms=30.0 if rank == 5 else 2.0))
            (tmp_path / f"rank{rank}.json.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def test_the_slow_function_is_named_with_its_rank(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As JSON and in words; victims wait, and who left nothing is missing."""
    found = document(["diagnose", str(folder)], monkeypatch, capsys)
    (suspect,) = found["suspects"]
    assert (suspect["ranks"], suspect["cause"]) == ([5], "data_loading")
    assert suspect["function"] == "data.py(7): __getitem__"
    assert (found["missing"], found["victims"]) == ([6], [0, 1, 2, 3, 4, 7])
    assert suspect["cost_s"] == pytest.approx(0.28 * 0.5, rel=0.05)
    assert call(["diagnose", str(folder)], monkeypatch) == 0
    out = capsys.readouterr().out
    assert "rank 5: its data loading is slow" in out
    assert "missing: no trace of rank 6" in out


def test_ranks_that_are_alike_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever their clocks say."""
    for rank in range(4):
        (tmp_path / f"trace_rank_{rank}.json").write_text(json.dumps(trace(rank)))
    assert document(["diagnose", str(tmp_path)], monkeypatch, capsys)["suspects"] == []


def test_the_published_rule_can_be_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names functions and ranks, no causes."""
    found = document(["diagnose", str(folder), "--rule", "published"], monkeypatch, capsys)
    assert {"function": "data.py(7): __getitem__", "ranks": [0, 1, 2, 3, 4, 5, 7]} in found["abnormal"]
    assert call(["diagnose", str(folder), "--rule", "guess"], monkeypatch) == 2
    assert "expected roles or published" in capsys.readouterr().err


def test_broken_traces_are_told_and_others_judged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty one, half of one, and one of a rank that there is already."""
    (folder / "rank6.json").write_text("")
    (folder / "rank7.json.gz").write_bytes((folder / "rank7.json.gz").read_bytes()[:100])
    found = document(["diagnose", str(folder)], monkeypatch, capsys)
    assert found["suspects"][0]["ranks"] == [5]
    assert found["missing"] == [6, 7]
    assert len(found["unread"]) == 2
    (folder / "again.json").write_text(json.dumps(trace(3)))
    assert call(["diagnose", str(folder)], monkeypatch) == 2
    assert "is of rank 3, as is" in capsys.readouterr().err


def test_a_folder_of_nothing_but_broken_traces_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what was expected."""
    (tmp_path / "rank0.json").write_text('{"traceEvents": [{"ph": "X"')
    assert call(["diagnose", str(tmp_path)], monkeypatch) == 2
    err = capsys.readouterr().err
    assert "ends in the middle of its events, expected a whole trace" in err
    assert err.count("\n") == 1


def test_a_pipe_among_the_traces_does_not_hold_anybody_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may never end."""
    os.mkfifo(folder / "a.json")
    assert document(["diagnose", str(folder)], monkeypatch, capsys)["suspects"][0]["ranks"] == [5]


def test_what_is_not_there_is_said_to_be_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not that its name tells no rank."""
    assert call(["diagnose", str(tmp_path / "nowhere")], monkeypatch) == 2
    assert "cannot be read: No such file or directory" in capsys.readouterr().err
