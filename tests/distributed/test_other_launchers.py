"""Holdfast beside other launchers: one flag or one line, and nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs import TRAIN, wait_until

from holdfast.observe.eventlog import read_run
from holdfast.values import RunEnded, StepSeen

pytestmark = pytest.mark.processes


def _names(run_dir: Path) -> list[str]:
    return [type(record.event).__name__ for record in read_run(run_dir).records]


def _has_ended(run_dir: Path) -> bool:
    return any(isinstance(record.event, RunEnded) for record in read_run(run_dir).records)


def test_boot_under_torchrun_watches_all_ranks(tmp_path: Path) -> None:
    """`torchrun -m holdfast.job.boot train.py` runs the script and leaves a run directory."""
    run_dir = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "-m", "holdfast.job.boot", str(TRAIN)],
        cwd=tmp_path,
        env=os.environ | {"HOLDFAST_RUN_DIR": str(run_dir), "STEPS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("ends with loss") == 2
    wait_until(lambda: _has_ended(run_dir), 10)
    seen = {r.event.rank for r in read_run(run_dir).records if isinstance(r.event, StepSeen)}
    assert seen == {0, 1}


def test_a_failure_under_torchrun_is_shown_by_torchrun(tmp_path: Path) -> None:
    """Without our launcher the traceback goes to stderr as usual, and torchrun finds the error file."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    done = subprocess.run(
        [*command, "-m", "holdfast.job.boot", str(TRAIN)],
        cwd=tmp_path,
        env=os.environ | {"FAIL": "0@3:raise"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "ValueError: the input is broken" in done.stderr
    assert "error_file: " in done.stderr
    assert "error_file: <N/A>" not in done.stderr


def test_one_line_in_a_plain_script_is_enough(tmp_path: Path) -> None:
    """`holdfast.watch()` needs no launcher at all; calling it twice does no harm."""
    script = tmp_path / "plain.py"
    script.write_text(
        "import time, torch, holdfast\n"
        "holdfast.watch('run'); holdfast.watch('run')\n"
        "model = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(80):\n"
        "    model(torch.ones(1, 2)).sum().backward(); optimizer.step(); time.sleep(0.02)\n"
    )
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True)
    wait_until(lambda: _has_ended(tmp_path / "run"), 10)
    assert _names(tmp_path / "run") == ["GuardStarted", "StepSeen", "RunEnded"]
    assert (tmp_path / "run" / "summaries.jsonl").exists()


def test_watch_never_raises_where_nothing_can_be_written(tmp_path: Path) -> None:
    """A folder that cannot be made and an unwritable current folder leave the script untouched."""
    (tmp_path / "run").write_text("a file")
    script = "import holdfast; holdfast.watch('run/inside'); print('goes on')"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "goes on\n"
