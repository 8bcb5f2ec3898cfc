"""What a worker says to its launcher while it lives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers import run_python
from holdfast.job import lastwords
from holdfast.job.lastwords import SURVIVES, say_survives


def test_nobody_is_told_where_there_is_no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker learns that it is alone."""
    monkeypatch.setattr(lastwords, "_reports", [])
    assert say_survives() is False


@pytest.mark.processes
@pytest.mark.parametrize("close", ["", "os.close({fd})\n"])
def test_the_launcher_is_told_unless_the_script_closed_its_pipe(tmp_path: Path, close: str) -> None:
    """One line of JSON, or False."""
    read_fd, write_fd = os.pipe()
    script = tmp_path / "script.py"
    says = "import os\nfrom holdfast.job.lastwords import say_survives\n"
    script.write_text(f"{says}{close.format(fd=write_fd)}print(say_survives())\n")
    env = {"HOLDFAST_REPORT_FD": str(write_fd)}
    done = run_python("-m", "holdfast.job.boot", str(script), cwd=tmp_path, env=env, pass_fds=[write_fd])
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as pipe:
        assert (done.stdout, pipe.read()) == (("False\n", b"") if close else ("True\n", SURVIVES + b"\n"))
