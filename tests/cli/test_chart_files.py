"""Charts are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import run_python

pytestmark = pytest.mark.processes

# A process that may write no more than 100 bytes into a file, as on a full disk.
_CRAMPED = """
import pathlib, resource
from holdfast.cli.files import write_chart
from holdfast.errors import InputError
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    write_chart(pathlib.Path("chart.svg"), "x" * 1000)
except InputError as error:
    print(error)
"""


def test_a_chart_that_does_not_fit_leaves_the_one_before(tmp_path: Path) -> None:
    """And nothing else beside it; the reason is one line."""
    (tmp_path / "chart.svg").write_text("the one before")
    done = run_python("-c", _CRAMPED, cwd=tmp_path)
    assert done.stdout == "--chart chart.svg: cannot be written: File too large\n"
    assert (tmp_path / "chart.svg").read_text() == "the one before"
    assert [path.name for path in tmp_path.iterdir()] == ["chart.svg"]
