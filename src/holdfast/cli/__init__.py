"""The verbs. Each imports what it needs when it is called, so that ``holdfast --help`` answers at once."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO, cast

import typer

from holdfast import __version__
from holdfast.cli.files import one_line
from holdfast.errors import HoldfastError, InputError, JobError

app = typer.Typer(
    name="holdfast",
    help="Keeps large PyTorch training runs fast and alive.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]


# Which module it is in depends on the version of typer.
_UsageError = cast(type[Exception], typer.BadParameter.__base__)


def main() -> None:
    """Run the command line; errors of ours become one line and their exit code."""
    stdout: TextIO | None = sys.stdout
    output = None if stdout is None else _Output(stdout)
    if output is not None:
        sys.stdout = cast(TextIO, output)
    try:
        try:
            sys.exit(_call())
        finally:
            if output is not None:  # What is still to be written may fail, too.
                output.flush()
    finally:
        sys.stdout = stdout


def _call() -> int:
    """Run the verb and return the exit code."""
    try:
        code = app(standalone_mode=False)
    except JobError as error:
        _complain(str(error))
        return error.exit_code
    except HoldfastError as error:
        _complain(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    except typer.Abort:
        return 1
    except _UsageError as error:
        _complain_usage(error)
        return 2
    return code if isinstance(code, int) else 0


class _Output:
    """Standard output that ends the program when it cannot be written.

    The libraries that write to it would hide some failures and let others become a traceback.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._give_up(error)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> NoReturn:
        _point_nowhere(self._stream)
        if error.errno == errno.EPIPE:  # `holdfast … | head` has what it wanted.
            sys.exit(141)
        _complain(f"cannot write the output: {error.strerror}")
        sys.exit(2)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _need_stdout() -> None:
    """Refuse before anything long begins that there is nowhere to print."""
    if cast(TextIO | None, sys.stdout) is None:
        raise InputError("cannot write the output: it is closed")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version)
    ] = False,
) -> None:
    pass


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
    """Start a real pipeline job, kill one of its workers, and watch the others go on.

    Runs on any Linux machine without a GPU, in about a minute. Example: holdfast demo --picture demo.svg
    """
    from holdfast.guard.native import load_torch

    load_torch("demo")
    from holdfast.cli.demo import play

    sys.exit(play(ranks=ranks, picture=picture))


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

    _need_stdout()
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

    _need_stdout()
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


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what works on this machine and what does not. Example: holdfast doctor --json"""
    from holdfast.cli.checkup import print_checkup

    print_checkup(as_json=as_json)


def _complain_usage(error: Exception) -> None:
    """Say what is wrong with the words on the command line; no words at all are answered with the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        cast(Any, error).show()
    else:
        message = cast(Any, error).format_message()
        _complain(message[:1].lower() + message[1:])


def _complain(message: str) -> None:
    """Print one line, if there is anywhere to print it: the exit code says enough without it."""
    stderr = cast(TextIO | None, sys.stderr)
    if stderr is None:
        return
    try:
        stderr.write(f"holdfast: {one_line(message)}\n")
        stderr.flush()
    except OSError:
        _point_nowhere(stderr)


def _point_nowhere(stream: TextIO) -> None:
    """Let what is left in the buffer go nowhere, or it would fail again when the program ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
