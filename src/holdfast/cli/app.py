"""What all verbs share: the app that they belong to, and ``--json``."""

from __future__ import annotations

import sys
from typing import Annotated, TextIO, cast

import typer

from holdfast.errors import InputError

app = typer.Typer(
    name="holdfast",
    help="Keeps large PyTorch training runs fast and alive.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]


def need_stdout() -> None:
    """Refuse before anything long begins that there is nowhere to print."""
    if cast(TextIO | None, sys.stdout) is None:
        raise InputError("cannot write the output: it is closed")
