"""Verbs that plan and simulate: no job is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.app import Json, app, need_stdout
from holdfast.errors import InputError


@app.command()
def plan(  # noqa: PLR0913, PLR0917 - typer reads the flags from here.
    dp: Annotated[str | None, typer.Option(metavar="N", help="Data-parallel pipelines.")] = None,
    pp: Annotated[str | None, typer.Option(metavar="N", help="Stages of each pipeline.")] = None,
    microbatches: Annotated[
        str | None, typer.Option(metavar="N", help="Micro-batches per pipeline and step.")
    ] = None,
    dead: Annotated[
        list[str] | None, typer.Option(metavar="WORKER", help="A dead worker, as pipeline.stage. May repeat.")
    ] = None,
    slow: Annotated[
        list[str] | None,
        typer.Option(metavar="WORKER=SPEED", help="A slow worker; 0.5 is half as fast. May repeat."),
    ] = None,
    costs: Annotated[
        list[str] | None,
        typer.Option(metavar="[STAGE=]F,I,W", help="Cost of forward, input and weight part. May repeat."),
    ] = None,
    comm: Annotated[str | None, typer.Option(metavar="TIME", help="A transfer between two stages.")] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="N", help="Most micro-batches in flight on a worker.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="naive, decoupled, staggered or adaptive (default).")
    ] = None,
    migrate: Annotated[bool, typer.Option("--migrate", help="Let workers change roles if it pays.")] = False,
    state_bytes: Annotated[
        str | None, typer.Option(metavar="N", help="What a worker copies to change its role.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML with a [plan] table; flags replace it.")
    ] = None,
    chart: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Write Gantt charts as .svg or .html. May repeat."),
    ] = None,
    executed: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Timelines of a run: show a step of it beside its plan."),
    ] = None,
    step: Annotated[
        int | None, typer.Option(metavar="N", help="With --executed: which step; default a typical one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Lay out the work of a pipeline job around workers that are slow or dead.

    Example: holdfast plan --dp 3 --pp 4 --microbatches 6 --dead 1.2 --chart plan.html

    Example: holdfast plan --dp 4 --pp 4 --microbatches 16 --slow 0.1=0.5 --costs 5,6,4 --memory 8 --json

    Example: holdfast plan --file job.toml --mode naive

    Example: holdfast plan --executed timelines --costs 12,12,12 --chart step.html
    """
    from holdfast.cli.planning import Recorded, print_executed, print_plan

    need_stdout()
    shape = {"dp": dp, "pp": pp, "microbatches": microbatches}
    work = {"dead": dead, "slow": slow, "costs": costs, "comm": comm, "memory": memory}
    how = {"mode": mode, "migrate": migrate, "state-bytes": state_bytes}
    flags = {**shape, **work, **how}
    if executed is not None:
        print_executed(Recorded(executed, step), flags, file, chart or [], as_json=as_json)
        return
    if step is not None:
        raise InputError(f"--step is {step}, expected with --executed FOLDER only")
    print_plan(flags, file, chart or [], as_json=as_json)


@app.command()
def simulate(  # noqa: PLR0913, PLR0917 - typer reads the flags from here.
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rows 'ms,add|remove,node' or 'date, time, count'.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Lose a worker every 30min, until half are gone.")
    ] = None,
    failures_per_node_day: Annotated[
        str | None, typer.Option(metavar="RATE", help="Lose workers at random, at this rate.")
    ] = None,
    repair: Annotated[
        str | None, typer.Option(metavar="TIME", help="After which they are back, with a rate. Default 2h.")
    ] = None,
    hours: Annotated[str | None, typer.Option(metavar="N", help="How long, with a rate. Default 24.")] = None,
    seed: Annotated[str, typer.Option(metavar="N", help="For all that is drawn.")] = "0",
    fit: Annotated[
        str, typer.Option(metavar="RULE", help="A trace of more or fewer nodes: share (default) or clip.")
    ] = "share",
    model: Annotated[
        str, typer.Option(metavar="NAME", help="gpt3-medium, gpt3-2.7b, gpt3-6.7b, bert-large or gpt2.")
    ] = "gpt3-6.7b",
    microbatches: Annotated[
        str | None, typer.Option(metavar="N", help="Micro-batches per pipeline and step.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="N", help="Most in flight on a worker, or none. Default: pp.")
    ] = None,
    strategy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A strategy; default all. May repeat.")
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write throughput over time as .svg or .html.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what is modelled, and where constants come from.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Throughput of strategies while workers fail and come back, all pauses included, on 32 workers.

    Example: holdfast simulate --every 30min --model gpt3-6.7b --chart failures.html

    Example: holdfast simulate --failures-per-node-day 0.5 --repair 2h --hours 72 --strategy holdfast --json
    """
    from holdfast.cli.scenario import Request
    from holdfast.cli.simulation import simulate as run_simulation

    need_stdout()
    request = Request(
        trace=trace,
        every=every,
        failures_per_node_day=failures_per_node_day,
        repair=repair,
        hours=hours,
        seed=seed,
        fit=fit,
        model=model,
        microbatches=microbatches,
        memory=memory,
        strategies=tuple(strategy or ()),
    )
    run_simulation(request, chart, as_json=as_json, explain=explain)
