"""Verbs that look at what a job has left behind, and say what was wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.app import Json, app, need_stdout


@app.command()
def detect(  # noqa: PLR0913, PLR0917 - typer reads the flags from here.
    file: Annotated[Path, typer.Argument(help="CSV, JSON lines, Parquet, or a Megatron or torchtitan log.")],
    column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column of step times. Default: duration_s and the like."),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(metavar="UNIT", help="Of that column: s, ms, us or ns. Default: by its name."),
    ] = None,
    step_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of step numbers. Default: step or iteration.")
    ] = None,
    work_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What a step had to do. Default: tokens, where there is one."),
    ] = None,
    slow: Annotated[
        float | None,
        typer.Option(metavar="FACTOR", help="A change is worth telling from this factor on: 1.10."),
    ] = None,
    method: Annotated[str, typer.Option(metavar="NAME", help="bayes (default) or eroica.")] = "bayes",
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the series and its episodes as .svg or .html.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find out since when a job is slow, from its step times alone.

    Example: holdfast detect steps.csv --chart steps.html

    Example: holdfast detect train.log --json

    Example: holdfast detect calls.csv  (time_s and op of every collective call: steps are found in them)

    Example: holdfast detect metrics.jsonl --column train/step_time --unit ms --work-column tokens
    """
    from holdfast.cli import detection

    need_stdout()
    request = detection.Request(
        path=file,
        column=column,
        unit=unit,
        step_column=step_column,
        work_column=work_column,
        slow=slow,
        method=method,
    )
    detection.detect(request, chart, as_json=as_json)


@app.command()
def diagnose(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Traces of torch's profiler or Flight Recorder dumps, one per rank; a table of operations.",
        ),
    ],
    what_if: Annotated[
        str | None,
        typer.Option(
            metavar="fix=PART:N", help="Of a trace: the step time with a rank, stage, dp or op fixed."
        ),
    ] = None,
    rule: Annotated[
        str, typer.Option(metavar="NAME", help="For profiles: roles, or published as EROICA's paper has it.")
    ] = "roles",
    as_json: Json = False,
) -> None:
    """Find out who is to blame, from what all ranks of a job left behind.

    Example: holdfast diagnose traces/

    Example: holdfast diagnose dumps/

    Example: holdfast diagnose /tmp/nccl_trace_rank_* --json

    Example: holdfast diagnose trace.parquet --what-if fix=rank:5
    """
    from holdfast.cli import diagnosis

    need_stdout()
    diagnosis.diagnose(files, what_if, rule, as_json=as_json)
