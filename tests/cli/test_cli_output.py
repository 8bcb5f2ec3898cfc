"""What the command line does when nobody can read what it writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLAN = "plan --dp 2 --pp 2 --microbatches 2"
VERBS = [PLAN, f"{PLAN} --json", "simulate --strategy fault-scaled --every 1h", "--help"]
pytestmark = pytest.mark.processes


def _run(arguments: str, redirection: str, cwd: Path) -> tuple[int, str]:
    """Run the command line in a shell; return its exit code and what it says on stderr."""
    command = f"set -o pipefail; '{sys.executable}' -m holdfast.cli {arguments} {redirection}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", VERBS)
def test_a_full_disk_is_one_line(arguments: str, tmp_path: Path) -> None:
    """Exit code 2 and no traceback."""
    expected = "holdfast: cannot write the output: No space left on device\n"
    assert _run(arguments, ">/dev/full", tmp_path) == (2, expected)


@pytest.mark.parametrize("arguments", VERBS)
def test_a_reader_who_has_enough_is_left_in_peace(arguments: str, tmp_path: Path) -> None:
    """Exit code 141, as if by the signal, and not a word."""
    assert _run(arguments, "| true", tmp_path) == (141, "")


@pytest.mark.parametrize("arguments", VERBS[:3])
def test_a_closed_output_is_one_line(arguments: str, tmp_path: Path) -> None:
    """Exit code 2, before anything long begins."""
    assert _run(arguments, ">&-", tmp_path) == (2, "holdfast: cannot write the output: it is closed\n")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_the_exit_code_holds_without_stderr(redirection: str, tmp_path: Path) -> None:
    """It is 2 for bad input even if nobody can be told what is bad."""
    assert _run(f"{PLAN} --dp 0", redirection, tmp_path)[0] == 2


def test_no_words_are_answered_with_the_help(tmp_path: Path) -> None:
    """All of it, on stderr, and exit code 2, since nothing was done."""
    code, said = _run("", "", tmp_path)
    assert (code, said.startswith("Usage: ")) == (2, True)
    assert "Keeps large PyTorch training runs fast and alive." in said
