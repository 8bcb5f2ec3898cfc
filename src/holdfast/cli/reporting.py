"""``holdfast report``: a run directory as a page and a text."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.cli.files import check_chart, one_line, write_chart
from holdfast.errors import InputError
from holdfast.serve.report.document import ENDINGS, is_report, read_tale, render, summarize, to_json


def report(folder: Path, out: Path | None, *, as_json: bool, is_forced: bool) -> None:
    """Read the run, write the report where it belongs, and say in a few lines what is in it."""
    if out is not None:
        check_chart(out, "--out", ENDINGS)
    tale = read_tale(folder)
    paths = _paths(folder, out, as_json=as_json)
    for path in paths:
        _check_free(path, is_forced=is_forced)
    for path in paths:
        write_chart(path, render(tale, path.suffix), "--out")
    if as_json:
        sys.stdout.write(to_json(tale).decode() + "\n")
        return
    for line in summarize(tale):
        sys.stdout.write(one_line(line) + "\n")
    for path in paths:
        sys.stdout.write(f"written: {one_line(str(path))}\n")


def _paths(folder: Path, out: Path | None, *, as_json: bool) -> list[Path]:
    if out is not None:
        return [out]
    return [] if as_json else [folder / f"report{ending}" for ending in ENDINGS]


def _check_free(path: Path, *, is_forced: bool) -> None:
    """Refuse to write over a file that is no report, unless that is wanted."""
    if path.exists() and not is_forced and not is_report(path):
        raise InputError(f"{path}: it is there and no report of holdfast, expected another --out, or --force")
