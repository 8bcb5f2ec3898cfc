"""``holdfast ship``: sends what a server has missed of run directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress

from holdfast.guard.posting import make_poster
from holdfast.guard.say import Say
from holdfast.guard.sending import Shipped, ship


def send(run_dirs: Sequence[Path], server: str, token_file: str | None, *, as_json: bool) -> int:
    """Send, print what was sent, and return the exit code: 1 if the server did not take all of it."""
    poster = make_poster(server, token_file=token_file)
    console = Console(stderr=True)
    with Progress(console=console, disable=as_json or not console.is_terminal, transient=True) as bar:
        task = bar.add_task("sending", total=sum(_lines_in(run_dir) for run_dir in run_dirs))
        try:
            shipped = ship(
                run_dirs, poster, say=Say(), on_lines=lambda lines: bar.update(task, advance=lines)
            )
        finally:
            poster.close()
    if as_json:
        typer.echo(msgspec.json.encode(shipped).decode())
    else:
        for each in shipped:
            typer.echo(_tell(each))
    return 1 if any(each.trouble for each in shipped) else 0


def _tell(shipped: Shipped) -> str:
    refused = f", {shipped.refused} lines cannot be sent" if shipped.refused else ""
    rest = f"; the rest was not sent: {shipped.trouble}" if shipped.trouble else ""
    return f"{shipped.run_dir}: {shipped.lines} lines sent{refused}{rest}"


def _lines_in(run_dir: Path) -> int:
    """Return how many lines there are; the bar is no worse for those that the server has already."""
    files = [*run_dir.glob("events*.jsonl"), run_dir / "summaries.jsonl"]
    return sum(_count(file) for file in files)


def _count(file: Path) -> int:
    try:
        with file.open("rb") as opened:
            return sum(1 for _ in opened)
    except OSError:
        return 0
