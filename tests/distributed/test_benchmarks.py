"""A small sample of the long proofs; the benchmarks themselves run many more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.alone]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def _rows(name: str, *arguments: str) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {next(iter(row.values())): row for row in json.loads(done.stdout)["rows"]}


def test_random_kills_leave_nothing_behind() -> None:
    """Launcher, guard and a worker, each killed at a moment drawn from the seed."""
    rows = _rows("kills.py", "--runs", "4", "--seed", "0")
    for row in rows.values():
        assert (row["left_behind"], row["broken_logs"], row["wrong_outcomes"]) == (0, 0, 0)


def test_a_restart_is_clean_beside_torchruns() -> None:
    """Ours is clean; torchrun's may or may not be, which is why it is measured in the same run."""
    rows = _rows("restart.py", "--runs", "1", "--timeout", "60")
    assert rows["holdfast run"]["clean"] == "1 of 1"
