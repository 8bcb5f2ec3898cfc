"""Profiles of all ranks: the map is drawn where it lies in the folder of runs, and nowhere else is read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from holdfast.diagnose.reduce import Known, WorkerPattern, number_of
from holdfast.findings import Suspect
from holdfast.guard.jobprofile import JobProfile
from holdfast.serve.web.views.diagnosis import show_profile
from holdfast.serve.web.views.page import render
from holdfast.serve.web.views.profilemap import find_profile
from holdfast.telemetry import ProfileOrder
from holdfast.values import Profiled, Record, Stamp

STAMP = Stamp(schema=1, event_id="1", at="2026-11-17T11:00:00+00:00", host="a", node=0, attempt=0)


def _record(order: str = "p1") -> Record:
    suspect = Suspect(ranks=[2], cause="compute", slowdown=1.5, confidence=0.8, evidence=["it <waits>"])
    event = Profiled(
        order=order, why="a person asked", first_step=10, last_step=19, suspects=[suspect], folder="/etc"
    )
    return Record(stamp=STAMP, event=event)


def _profile() -> JobProfile:
    known = [Known(kind="compute", stack=["gemm<128>"]), Known(kind="python", stack=["read", "loop.py(8)"])]
    numbers = np.array([number_of(each) for each in known], np.uint64).tobytes()
    patterns = []
    for rank in range(8):
        shares = np.array([[0.6, 0.8, 0.02], [0.35 if rank == 2 else 0.05, 0.8, 0.02]])
        packed = (shares * 65_535).round().astype(np.uint16).tobytes()
        patterns.append(WorkerPattern(rank=rank, span_s=4.0, steps=10, numbers=numbers, shares=packed))
    return JobProfile(
        order=ProfileOrder(id="p1", ranks=list(range(8)), first_step=10, last_step=19, folder="x"),
        why="a person asked",
        results=[],
        patterns=patterns,
        functions={number_of(each): each for each in known},
        usage={},
        unread=[],
        channels={},
        hosts={},
    )


def _keep(runs: Path, name: str) -> Path:
    folder = runs / name / "profiles" / "p1"
    folder.mkdir(parents=True)
    (folder / "job.json").write_bytes(msgspec.json.encode(_profile()))
    return folder


def test_the_map_of_a_run_of_this_machine_is_part_of_the_page(tmp_path: Path) -> None:
    """It is the one that ``holdfast diagnose`` draws, without a style of its own."""
    _keep(tmp_path, "llm")
    shown = show_profile(_record(), runs=tmp_path, name="llm")
    page = render("part-diagnosis.html", {"profiles": [shown]})
    assert 'class="map"' in page
    assert "gemm&lt;128&gt;" in page
    assert "style" not in page
    assert "it &lt;waits&gt;" in page


@pytest.mark.parametrize(
    ("name", "order"), [("../llm", "p1"), ("llm", "../p1"), (".llm", "p1"), ("llm", ""), ("other", "p1")]
)
def test_nothing_outside_the_folder_is_read(tmp_path: Path, name: str, order: str) -> None:
    """Names come from whoever ships; they cannot lead anywhere else."""
    runs = tmp_path / "runs"
    runs.mkdir()
    _keep(tmp_path, "llm")
    (runs / "other").symlink_to(tmp_path / "llm")
    assert find_profile(runs, name, order) is None
    assert find_profile(None, "llm", "p1") is None


def test_what_is_no_profile_has_no_map(tmp_path: Path) -> None:
    """The suspects that the run itself named are shown all the same."""
    (_keep(tmp_path, "llm") / "job.json").write_text("{}")
    shown = show_profile(_record(), runs=tmp_path, name="llm")
    assert shown.map == ""
    assert [found.words for found in shown.suspects] == ["rank 2: its compute is slow"]
