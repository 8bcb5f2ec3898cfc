"""Verbs that look at what a job has left behind, and say what was wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.app import Json, app, need_stdout

Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report as one .html file.")]
Bundle = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write suspects, code and host facts as one .md file."),
]


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
def diagnose(  # noqa: PLR0913, PLR0917 - typer reads the flags from here.
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Traces of torch's profiler or Flight Recorder dumps, one per rank; a table of operations; "
            "a run that was profiled.",
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
    html: Html = None,
    bundle: Bundle = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Read traces on a Ray cluster: its address, auto, or local."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find out who is to blame, from what all ranks of a job left behind.

    Example: holdfast diagnose traces/ --html report.html

    Example: holdfast diagnose holdfast_runs/20261115-194012-4f1c --bundle case.md

    Example: holdfast diagnose s3://bucket/traces --ray auto

    Example: holdfast diagnose dumps/

    Example: holdfast diagnose /tmp/nccl_trace_rank_* --json

    Example: holdfast diagnose trace.parquet --what-if fix=rank:5
    """
    from holdfast.cli import diagnosis
    from holdfast.cli.profiles import Wanted

    need_stdout()
    wanted = Wanted(rule=rule, as_json=as_json, html=html, bundle=bundle, ray=ray)
    diagnosis.diagnose(files, what_if, wanted)


@app.command()
def profile(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of a job that runs.")],
    steps: Annotated[
        str | None, typer.Option(metavar="N", help="How many. Default: as many as take five seconds.")
    ] = None,
    html: Html = None,
    bundle: Bundle = None,
    as_json: Json = False,
) -> None:
    """Profile all ranks of a running job over the same steps, and say who holds it up.

    Training stands still for a moment at the last of these steps; for how long is said.

    Example: holdfast profile holdfast_runs/20261115-194012-4f1c --html report.html
    """
    from holdfast.cli import profiling
    from holdfast.cli.profiles import Wanted

    need_stdout()
    profiling.profile(run_dir, steps, Wanted(as_json=as_json, html=html, bundle=bundle))
