"""The screen of the demo: step times as bars, workers, the last events; and the summary at its end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.cli.words import name_fault, phrase
from holdfast.lab.story import Story
from holdfast.values import (
    AttemptStarted,
    FaultInjected,
    FaultRelieved,
    Record,
    Step,
    StepSeen,
    WorkerDied,
)

_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 90
_HEIGHT = 5
_EVENTS = 7


class Screen:
    """Turns steps and events into what is drawn, again and again."""

    def __init__(self, *, ranks: int, steps: int) -> None:
        self._ranks = ranks
        self._steps = steps

    def draw(self, steps: Sequence[Step], records: Sequence[Record]) -> RenderableType:
        """Return the whole screen."""
        title = f"holdfast demo: {self._ranks} workers, plain DDP over gloo, emulated accelerators"
        return Panel(
            Group(_chart(steps), Text(), self._workers(steps, records), Text(), _feed(records)),
            title=title,
            width=_WIDTH + 6,
        )

    def _workers(self, steps: Sequence[Step], records: Sequence[Record]) -> RenderableType:
        attempt = max((r.stamp.attempt for r in records if isinstance(r.event, AttemptStarted)), default=0)
        last = {step.rank: step.step for step in steps if step.attempt == attempt}
        states = _states(records, self._ranks)
        table = Table(box=None, pad_edge=False, show_header=False)
        for rank in range(self._ranks):
            done = last.get(rank, -1) + 1
            filled = round(30 * done / self._steps)
            bar = Text("█" * filled, style="green") + Text("░" * (30 - filled), style="dim")
            style, word = states[rank]
            table.add_row(f"rank {rank}", bar, f"step {done:3d} of {self._steps}", Text(word, style=style))
        return table


def print_summary(console: Console, story: Story, run_dir: Path) -> None:
    """Print the figures at the end."""
    table = Table(box=None, pad_edge=False, show_header=False)
    if story.healthy_s is not None:
        table.add_row("healthy step", f"{1000 * story.healthy_s:.0f} ms", "median, emulated accelerators")
    for slow in story.slowdowns:
        after = f", {1000 * slow.after_s:.0f} ms after relief" if slow.after_s is not None else ""
        before = f"{slow.factor:.1f} times the {1000 * slow.before_s:.0f} ms before"
        table.add_row(
            f"under {name_fault(slow.fault)}",
            f"{1000 * slow.during_s:.0f} ms",
            f"{before}: one slow worker slows all{after}",
        )
    for recovery in story.recoveries:
        table.add_row(
            f"rank {recovery.rank} killed",
            f"{recovery.pause_s:.1f} s",
            "until the next finished step: all workers were restarted",
        )
    console.print(table)
    console.print(f"event log: {run_dir / 'events.jsonl'}", highlight=False, soft_wrap=True)


def _chart(steps: Sequence[Step]) -> Text:
    """Draw the step time of rank 0, one column per step, newest at the right."""
    durations = [step.duration_s for step in steps if step.rank == 0 and step.duration_s > 0][-_WIDTH:]
    top_s = max([*durations, 0.001])
    text = Text(f"step time, up to {1000 * top_s:.0f} ms\n", style="bold")
    for row in reversed(range(_HEIGHT)):
        for duration_s in durations:
            level = duration_s / top_s * _HEIGHT - row
            text.append(_BARS[max(0, min(8, round(8 * level)))], style="cyan")
        text.append("\n")
    return text


def _states(records: Sequence[Record], ranks: int) -> list[tuple[str, str]]:
    states = [("dim", "starting")] * ranks
    for record in records:
        match record.event:
            case AttemptStarted():
                states = [("dim", "starting")] * ranks
            case StepSeen(rank=rank):
                states[rank] = ("green", "training")
            case FaultInjected(fault=fault) if fault.kind != "kill":
                for rank in fault.ranks:
                    states[rank] = ("yellow", f"{fault.kind} x{fault.severity:g}")
            case FaultRelieved(fault=fault):
                for rank in fault.ranks:
                    states[rank] = ("green", "training")
            case WorkerDied(death=death):
                states[death.rank] = ("red", "dead")
    return states


def _feed(records: Sequence[Record]) -> Text:
    text = Text()
    if not records:
        return Text("starting the launcher …\n", style="dim")
    began = datetime.fromisoformat(records[0].stamp.at)
    for record in [record for record in records if not isinstance(record.event, StepSeen)][-_EVENTS:]:
        since_s = (datetime.fromisoformat(record.stamp.at) - began).total_seconds()
        is_bad = isinstance(record.event, (FaultInjected, WorkerDied))
        text.append(f"{since_s:6.1f} s  ", style="dim")
        text.append(f"{phrase(record.event)}\n", style="red" if is_bad else "")
    return text
