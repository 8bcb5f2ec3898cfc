"""Verbs that take the long view: what a cluster's records say, and what to expect of a job."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.app import Json, app, need_stdout
from holdfast.errors import MissingError

reliability = typer.Typer(
    help="What to expect of a cluster, from the records it keeps.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(reliability, name="reliability")

PerNode = Annotated[str, typer.Option(metavar="N", help="GPUs of a node.")]


def need_packages(*names: str) -> None:
    """Refuse to go on without packages that only these verbs need."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            raise MissingError(
                f"holdfast reliability needs {name}: pip install 'holdfast[reliability]'"
            ) from None


@reliability.command()
def mttf(
    file: Annotated[Path, typer.Argument(help="Failure records (LANL's layout), or output of sacct -P.")],
    gpus_per_node: PerNode = "8",
    over_gpus: Annotated[
        str, typer.Option(metavar="N", help="Attempts of jobs: the rate is of those with more GPUs.")
    ] = "128",
    days: Annotated[
        str | None,
        typer.Option(metavar="N", help="Failure records: days watched. Default: from first to last failure."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Failure rate per 1000 node-days with its 90 % interval, and mean time to failure by size of job.

    Example: holdfast reliability mttf failures.csv

    Example: holdfast reliability mttf sacct.txt --over-gpus 8 --json
    """
    need_stdout()
    need_packages("polars", "scipy")
    from holdfast.cli import mttf as verb

    request = verb.Request(path=file, gpus_per_node=gpus_per_node, over_gpus=over_gpus, days=days)
    verb.print_mttf(request, as_json=as_json)


@reliability.command()
def ettr(  # noqa: PLR0913, PLR0917 - typer reads the flags from here.
    gpus: Annotated[str, typer.Option(metavar="N", help="Of the job.")],
    rate: Annotated[str, typer.Option(metavar="R", help="Failures per 1000 node-days, as mttf gives it.")],
    gpus_per_node: PerNode = "8",
    checkpoint_min: Annotated[
        str, typer.Option(metavar="MIN", help="Work between two checkpoints, or best.")
    ] = "60",
    restart_min: Annotated[
        str, typer.Option(metavar="MIN", help="From the start of an attempt to its first step.")
    ] = "5",
    write_min: Annotated[
        str, typer.Option(metavar="MIN", help="For which a checkpoint stops the work.")
    ] = "0",
    queue_min: Annotated[str, typer.Option(metavar="MIN", help="Expected before each attempt.")] = "0",
    rate_low: Annotated[
        str | None, typer.Option(metavar="R", help="With --rate-high: the interval of the rate.")
    ] = None,
    rate_high: Annotated[str | None, typer.Option(metavar="R", help="With --rate-low.")] = None,
    target: Annotated[str, typer.Option(metavar="ETTR", help="What must be true for it?")] = "0.9",
    pause_s: Annotated[
        str | None, typer.Option(metavar="S", help="Adaptive: lost to a failure or a return. Default 0.26.")
    ] = None,
    slope: Annotated[
        str | None, typer.Option(metavar="X", help="Adaptive: speed lost per share of nodes lost. Default 1.")
    ] = None,
    repair_hours: Annotated[
        str | None, typer.Option(metavar="H", help="Adaptive: until a node is back. Default 24.")
    ] = None,
    stages: Annotated[
        str | None, typer.Option(metavar="N", help="Adaptive: of the pipeline. Default 8.")
    ] = None,
    tolerated: Annotated[
        str | None, typer.Option(metavar="N", help="Adaptive: most nodes of a stage gone. Default half.")
    ] = None,
    seed: Annotated[str, typer.Option(metavar="N", help="For the runs that are played.")] = "0",
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it by size, rate and interval: one .html file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The share of its time in which a job would get on (ETTR), and what would have to change for more.

    Example: holdfast reliability ettr --gpus 16384 --rate 6.5 --checkpoint-min 30 --write-min 1

    Example: holdfast reliability ettr --gpus 100000 --rate 2.34 --checkpoint-min best --write-min 0.5 --json

    Example: holdfast reliability ettr --gpus 100000 --rate 6.5 --write-min 0.5 --chart outlook.html
    """
    need_stdout()
    need_packages("scipy")
    from holdfast.cli import outlook

    request = outlook.Request(
        gpus=gpus,
        rate=rate,
        gpus_per_node=gpus_per_node,
        checkpoint_min=checkpoint_min,
        restart_min=restart_min,
        write_min=write_min,
        queue_min=queue_min,
        rate_low=rate_low,
        rate_high=rate_high,
        target=target,
        pause_s=pause_s,
        slope=slope,
        repair_hours=repair_hours,
        stages=stages,
        tolerated=tolerated,
        seed=seed,
    )
    outlook.print_outlook(request, chart, as_json=as_json)


@reliability.command()
def collect(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the answers are kept.")],
    days: Annotated[str, typer.Option(metavar="N", help="How far back.")] = "90",
    as_json: Json = False,
) -> None:
    """Ask a live Slurm for its attempts, node events and exclusions, and keep the answers as they are.

    Example: holdfast reliability collect --days 90 --out books/
    """
    need_stdout()
    from holdfast.cli import clusterbooks

    clusterbooks.collect_books(out, days, as_json=as_json)


@reliability.command()
def check(
    file: Annotated[Path, typer.Argument(help="TOML with tables [[check]]: name, command, every_s, when.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Rows are appended to it as JSON lines.")],
    when: Annotated[str, typer.Option(metavar="MOMENT", help="periodic, prolog or epilog.")] = "periodic",
    once: Annotated[bool, typer.Option("--once", help="Each check once, then end.")] = False,
) -> None:
    """Run health checks of this node: by their cadence, or once around a job.

    A check is any command that exits with 0 (fine), 1 (warning), 2 (critical) or 3 (unknown). Around a job,
    and with --once, the exit code is that of the worst, as a prolog needs it.

    Example: holdfast reliability check checks.toml --out /var/log/holdfast/checks.jsonl

    Example: holdfast reliability check checks.toml --out checks.jsonl --when prolog
    """
    need_stdout()
    from holdfast.cli import clusterbooks

    raise typer.Exit(clusterbooks.check_node(file, out, moment=when, is_once=once))


Records = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...", help="Any records, or folders of them: sacct, events, checks, failures."
    ),
]
Zone = Annotated[str, typer.Option(metavar="NAME", help="Of times that do not say: Europe/Paris.")]


@reliability.command()
def report(  # noqa: PLR0913, PLR0917 - typer reads the flags from here.
    files: Records,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page, one .html file.")] = None,
    over_gpus: Annotated[
        str, typer.Option(metavar="N", help="The failure rate is of jobs with more GPUs.")
    ] = "128",
    gpus_per_node: PerNode = "8",
    timezone: Zone = "UTC",
    as_json: Json = False,
) -> None:
    """Everything at once: how attempts end, failure rate, time to failure, causes, losses, lemon nodes.

    Example: holdfast reliability report books/ --out report.html

    Example: holdfast reliability report sacct.txt checks.jsonl --over-gpus 8 --json
    """
    need_stdout()
    need_packages("polars", "scipy")
    from holdfast.cli import clusterreport

    request = clusterreport.Request(
        paths=files, timezone=timezone, over_gpus=over_gpus, gpus_per_node=gpus_per_node
    )
    clusterreport.print_report(request, out, as_json=as_json)


@reliability.command()
def lemons(
    files: Records,
    drain: Annotated[bool, typer.Option("--drain", help="Print commands that would drain them.")] = False,
    timezone: Zone = "UTC",
    as_json: Json = False,
) -> None:
    """Nodes that keep failing jobs, by their last 28 days, against what they were exposed to.

    Example: holdfast reliability lemons books/

    Example: holdfast reliability lemons sacct.txt events.txt checks.jsonl --drain
    """
    need_stdout()
    need_packages("polars", "scipy")
    from holdfast.cli import clusterreport

    request = clusterreport.Request(paths=files, timezone=timezone)
    clusterreport.print_lemons(request, is_drain=drain, as_json=as_json)
