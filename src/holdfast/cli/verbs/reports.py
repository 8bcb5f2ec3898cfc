"""Verbs that tell a whole run to a person."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.app import Json, app, need_stdout


@app.command()
def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory, of any run.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .html or .md file. Default: RUN/report.html and RUN/report.md."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also write over a file that is no report.")] = False,
    as_json: Json = False,
) -> None:
    """Tell what happened to a run: its incidents, who and why, what was done, what it cost, what to do next.

    Example: holdfast report holdfast_runs/20261115-194012-4f1c

    Example: holdfast report holdfast_runs/20261115-194012-4f1c --out report.html
    """
    from holdfast.cli import reporting

    need_stdout()
    reporting.report(run_dir, out, as_json=as_json, is_forced=force)
