"""The verbs. Each imports what it needs when it is called, so that ``holdfast --help`` answers at once."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.errors import HoldfastError, JobError, MissingError

app = typer.Typer(
    name="holdfast",
    help="Keeps large PyTorch training runs fast and alive.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_AS_TORCHRUN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def main() -> None:
    """Run the command line; errors of ours become one line and their exit code."""
    try:
        app(standalone_mode=True)
    except JobError as error:
        _complain(error)
        sys.exit(error.exit_code)
    except HoldfastError as error:
        _complain(error)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _complain(error: HoldfastError) -> None:
    sys.stderr.write(f"holdfast: {error}\n")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command(
    context_settings=_AS_TORCHRUN,
    add_help_option=False,
    help="""Run a training script: takes every flag of torchrun.

    Example: holdfast run --standalone --nproc-per-node 2 train.py --steps 100
    """,
)
def run(context: typer.Context) -> None:
    """Run a training script; `holdfast run --help` lists torchrun's flags and ours."""
    _load_torch("run")
    from holdfast.guard.launch import launch

    sys.exit(launch(context.args))


def _load_torch(verb: str) -> None:
    """Import torch, or say how to get it; its native code is told to keep warnings to itself."""
    import importlib.util
    import os

    if importlib.util.find_spec("torch") is None:
        raise MissingError(f"holdfast {verb} needs torch: pip install 'holdfast[torch]'")
    is_quiet = "TORCH_CPP_LOG_LEVEL" not in os.environ
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    importlib.import_module("torch")
    if is_quiet:  # Read once, at the import; the workers decide for themselves.
        del os.environ["TORCH_CPP_LOG_LEVEL"]


if __name__ == "__main__":
    main()
