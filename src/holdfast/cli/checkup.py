"""``holdfast doctor``: the checks of launcher and lab as one table."""

from __future__ import annotations

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from holdfast.guard.doctor import Check, checkup
from holdfast.lab.mechanisms import survey


def print_checkup(*, as_json: bool) -> None:
    """Print what works here and what does not."""
    checks = checkup() + [
        Check(topic="faults", name=found.name, is_available=found.is_available, detail=found.detail)
        for found in survey()
    ]
    if as_json:
        typer.echo(msgspec.json.encode({"checks": checks}).decode())
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    topic = ""
    for check in checks:
        mark = "[green]yes[/]" if check.is_available else "[yellow]no[/]"
        table.add_row(check.topic if check.topic != topic else "", check.name, mark, check.detail)
        topic = check.topic
    Console().print(table)
