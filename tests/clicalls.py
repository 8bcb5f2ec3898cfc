"""Calls of the command line within the test's own process."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from holdfast import cli


def call(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    """Run the command line and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["holdfast", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code


def document(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """The JSON of a call: one line, and nothing else."""
    assert call([*arguments, "--json"], monkeypatch) == 0
    out, err = capsys.readouterr()
    assert (err, out.count("\n")) == ("", 1)
    return json.loads(out)
