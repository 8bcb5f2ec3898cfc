"""``holdfast profile`` as a person would use it: real jobs on one node and on two."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from runs import TRAIN, running, wait_until
from twonodes import STALLED, Pair

from holdfast.values import Profiled

pytestmark = [pytest.mark.processes, pytest.mark.alone]


def holdfast(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def test_ranks_of_two_nodes_are_profiled_together(tmp_path: Path) -> None:
    """The stalled rank of the other node is named with its function; nothing but patterns came from there."""
    with ExitStack() as stack:
        pair = Pair(tmp_path, stack)
        pair.wait_for_history()
        pair.stall()
        run_dir = pair.nodes[0].run_dir
        page, bundle = tmp_path / "report.html", tmp_path / "case.md"
        done = holdfast(
            "profile", str(run_dir), "--steps", "10", "--json", "--html", str(page), "--bundle", str(bundle)
        )
        assert (done.returncode, done.stderr) == (0, "")
        verdict: dict[str, Any] = json.loads(done.stdout)
        assert pair.finish() == [0, 0]
    first = verdict["suspects"][0]
    assert (first["ranks"], first["cause"]) == ([STALLED], "data_loading")
    assert first["function"] == "<built-in function sleep>"
    assert (verdict["ranks"], verdict["missing"], verdict["unread"]) == ([0, 1, 2, 3], [], [])
    events = [event for event in pair.events(0) if isinstance(event, Profiled)]
    assert [event.why for event in events] == ["a person asked"]
    assert events[0].last_step - events[0].first_step == 9
    assert events[0].blocked_s > 0
    traces = [sorted(path.name for path in node.run_dir.glob("profiles/*/rank_*")) for node in pair.nodes]
    assert traces == [[f"rank_{rank}.pt.trace.json.gz" for rank in ranks] for ranks in ((0, 1), (2, 3))]
    assert "data_loading" in bundle.read_text() or "data loading" in bundle.read_text()
    assert "__getitem__" in page.read_text()
    again = holdfast("diagnose", str(run_dir), "--json")
    assert json.loads(again.stdout)["suspects"] == verdict["suspects"]


def test_what_cannot_be_profiled_is_one_line(tmp_path: Path) -> None:
    """No run, a run that has ended, a number that is none."""
    with running(tmp_path, "--nproc-per-node", "1", str(TRAIN), STEPS="5") as run:
        assert run.finish() == 0
    for words, said in (
        ((str(tmp_path / "absent"),), "no events.jsonl in it"),
        ((str(run.run_dir),), "the run has ended"),
        ((str(run.run_dir), "--steps", "0"), "--steps"),
        ((str(run.run_dir), "--html", "page.txt"), "ends in .html"),
    ):
        done = holdfast("profile", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert said in done.stderr


def test_a_schedule_profiles_again_and_again(tmp_path: Path) -> None:
    """Without anybody asking; training ends as usual."""
    words = ("--nproc-per-node", "2", "--profile-every", "40", str(TRAIN))
    with running(tmp_path, *words, STEPS="100000") as run:
        run.wait_for_steps()
        wait_until(lambda: any(isinstance(r.event, Profiled) for r in run.events().records), 120)
    event = next(r.event for r in run.events().records if isinstance(r.event, Profiled))
    assert event.why == "every 40 steps"
    assert event.missing == []
