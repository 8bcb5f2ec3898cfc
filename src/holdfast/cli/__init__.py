"""The command line: verbs, errors in one line, exit codes.

A verb imports what it needs when it is called, so that ``holdfast --help`` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import Annotated, Any, NoReturn, TextIO, cast

import typer

from holdfast import __version__
from holdfast.cli.app import app
from holdfast.cli.files import one_line
from holdfast.cli.verbs import (  # noqa: F401 - to import a verb is to have it.
    control,
    findings,
    jobs,
    plans,
    reliability,
    reports,
)
from holdfast.errors import HoldfastError, JobError

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
