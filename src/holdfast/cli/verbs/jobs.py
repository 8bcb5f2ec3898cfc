"""Verbs that start real jobs, and the one that says whether they would work here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.app import Json, app


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    help="""Run a training script; takes every flag of torchrun.

    Example: holdfast run --standalone --nproc-per-node 2 train.py --steps 100
    """,
)
def run(context: typer.Context) -> None:
    """Run a training script; ``holdfast run --help`` lists torchrun's flags and ours."""
    from holdfast.guard.native import load_torch

    load_torch("run")
    from holdfast.guard.launch import launch

    sys.exit(launch(context.args))


@app.command()
def join(
    run_dir: Annotated[Path, typer.Argument(help="Run directory of the job, as node 0 wrote it.")],
) -> None:
    """Add a worker to a pipeline job under way: it takes a free place, or waits as a spare for one.

    For machines that come and go, such as spot instances; the job must be reachable from here.

    Example: holdfast join holdfast_runs/20261115-194012-4f1c
    """
    from holdfast.guard import joining

    joining.join(run_dir)


@app.command()
def act(
    run_dir: Annotated[Path, typer.Argument(help="Run directory of the job.")],
    levels: Annotated[
        str, typer.Argument(help="all, none, or a list: S2 (shares), S3 (places), S4 (restart).")
    ],
) -> None:
    """Say what may be done about a slow job under way, as `run --act` does at its start.

    Example: holdfast act holdfast_runs/20261115-194012-4f1c S2,S3

    Example: holdfast act holdfast_runs/20261115-194012-4f1c none
    """
    from holdfast.guard.levels import change_levels

    change_levels(run_dir, levels)


@app.command()
def ship(
    run_dirs: Annotated[list[Path], typer.Argument(metavar="RUN_DIR…", help="Run directories.")],
    server: Annotated[
        str, typer.Option(envvar="HOLDFAST_SERVER", metavar="URL", help="Address of the server.")
    ],
    token_file: Annotated[
        str | None,
        typer.Option(
            envvar="HOLDFAST_TOKEN_FILE",
            metavar="FILE",
            help="File with the token for the server. Default: the variable HOLDFAST_TOKEN.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Send to a server what it has not got of runs, because it was away or nobody had named it.

    What it has already is not taken twice. Exit code 1: the server did not take all of it.

    Example: holdfast ship holdfast_runs/20261115-194012-4f1c --server http://127.0.0.1:8417
    """
    from holdfast.cli import shipping

    sys.exit(shipping.send(run_dirs, server, token_file, as_json=as_json))


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
    options_metavar="--fault FAULT … (RUN_DIR | [FLAGS OF RUN] SCRIPT …)",
)
def inject(
    context: typer.Context,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="A fault in words: 'slow_device rank=1 at=20 for=20 severity=2'. May repeat."),
    ] = None,
    faults: Annotated[Path | None, typer.Option(help="A TOML file with [[fault]] tables.")] = None,
    kinds: Annotated[bool, typer.Option("--kinds", help="List the kinds of faults.")] = False,
) -> None:
    """Break a job on purpose: one that it starts like `run`, or a live one given by its run directory.

    Example: holdfast inject --fault 'kill rank=1 at=20' --nproc-per-node 2 train.py

    Example: holdfast inject --fault 'hang rank=0 for=10' holdfast_runs/20261115-194012-4f1c
    """
    from holdfast.cli import injection
    from holdfast.guard.native import load_torch

    if kinds:
        injection.print_kinds()
        return
    chosen = injection.gather(fault or [], faults)
    run_dir = injection.live_run(context.args)
    if run_dir is not None:
        injection.inject_live(run_dir, chosen)
        return
    load_torch("inject")
    sys.exit(injection.inject_new(context.args, chosen))


@app.command()
def demo(
    ranks: Annotated[int, typer.Option(help="Number of workers, even.", min=4, max=64)] = 6,
    picture: Annotated[Path | None, typer.Option(help="Write what happened as an SVG picture.")] = None,
) -> None:
    """Start a real pipeline job, slow one of its workers down, kill another, and watch it go on.

    Runs on any Linux machine without a GPU, in about two minutes. Example: holdfast demo --picture demo.svg
    """
    from holdfast.guard.native import load_torch

    load_torch("demo")
    from holdfast.cli.demo import play

    sys.exit(play(ranks=ranks, picture=picture))


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what works on this machine and what does not. Example: holdfast doctor --json"""
    from holdfast.cli.checkup import print_checkup

    print_checkup(as_json=as_json)
