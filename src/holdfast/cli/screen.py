"""The screen of the demo: step times as bars, the grid of workers, the last events; and the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.incidents.words import phrase
from holdfast.lab.story import Slowness, Story, tell, witnessed
from holdfast.membership import Needs
from holdfast.telemetry import Step
from holdfast.values import (
    AttemptStarted,
    FaultInjected,
    IncidentClosed,
    Record,
    Regrouped,
    StepSeen,
    SuspectsNamed,
    WorkerDied,
    WorkerReturned,
)

_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 90
_HEIGHT = 5
_EVENTS = 7
_LOOKS = {"starting": "dim", "connected": "cyan", "training": "green", "slow": "yellow", "dead": "bold red"}


class Screen:
    """Turns steps and events into what is drawn, again and again."""

    def __init__(self, needs: Needs, *, steps: int) -> None:
        self._needs = needs
        self._steps = steps

    def draw(
        self, steps: Sequence[Step], records: Sequence[Record], losses: Mapping[int, str]
    ) -> RenderableType:
        """Return the whole screen."""
        shape = f"{self._needs.dp} pipelines x {self._needs.pp} stages"
        both = Table.grid(padding=(0, 6))
        both.add_row(self._workers(records), self._figures(steps, records, losses))
        dead = {record.event.death.rank for record in records if isinstance(record.event, WorkerDied)}
        return Panel(
            Group(_chart(witnessed(steps, dead)), Text(), both, Text(), _feed(records)),
            title=f"holdfast demo: {shape}, emulated accelerators",
            width=_WIDTH + 6,
        )

    def _workers(self, records: Sequence[Record]) -> RenderableType:
        """Draw the grid: a row for each pipeline, a column for each stage."""
        words = states(records, self._needs.dp * self._needs.pp)
        table = Table(box=None, pad_edge=False)
        for name in ["", *(f"stage {stage}" for stage in range(self._needs.pp))]:
            table.add_column(name)
        for pipeline in range(self._needs.dp):
            row = words[pipeline * self._needs.pp :][: self._needs.pp]
            cells = [Text(f"{pipeline}.{stage} {word}", style=_LOOKS[word]) for stage, word in enumerate(row)]
            table.add_row(f"pipeline {pipeline}", *cells)
        return table

    def _figures(
        self, steps: Sequence[Step], records: Sequence[Record], losses: Mapping[int, str]
    ) -> RenderableType:
        story = tell(steps, records, self._needs)
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_row("step", f"{len(losses)} of {self._steps}")
        if losses:
            table.add_row("loss", f"{float(losses[max(losses)]):.4f}")
        if story.before_s is not None:
            table.add_row("step time", f"{1000 * story.before_s:.0f} ms")
        for recovery in story.recoveries:
            table.add_row(Text(f"{recovery.worker} killed", "red"), f"{recovery.pause_s:.2f} s lost")
        if story.after_s is not None:
            table.add_row("step time now", f"{1000 * story.after_s:.0f} ms")
        return table


def states(records: Sequence[Record], ranks: int) -> list[str]:
    """Return a word for every worker: starting, connected, training, slow or dead."""
    words = ["starting"] * ranks
    for record in records:
        match record.event:
            case AttemptStarted():
                words = ["starting"] * ranks
            case Regrouped(generation=0, members=members):
                words = ["connected" if rank in members else word for rank, word in enumerate(words)]
            case StepSeen(rank=rank) if words[rank] != "dead":
                words[rank] = "training"
            case WorkerDied(death=death):
                words[death.rank] = "dead"
            case WorkerReturned(rank=rank):
                words[rank] = "starting"
            case SuspectsNamed(since_step=step, suspects=[first, *_]) if step > 0:
                words = ["slow" if rank in first.ranks else word for rank, word in enumerate(words)]
            case IncidentClosed():
                words = ["training" if word == "slow" else word for word in words]
    return words


def print_summary(console: Console, story: Story, *, difference: str | None, steps: int) -> None:
    """Print the figures at the end; what is said of the loss was compared."""
    rows = _say_time(story)
    if difference is None:
        words = f"to the last bit as without the failure: {steps} losses, and all parameters at the end"
        rows.append(("loss", "same", words))
    else:
        rows.append(("loss", "differs", difference))
    wide = [max(len(row[column]) for row in rows) + 2 for column in range(2)]
    for name, value, words in rows:
        line = f"{name.ljust(wide[0])}{value.ljust(wide[1])}{words}"
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _say_time(story: Story) -> list[tuple[str, str, str]]:
    rows = []
    if story.before_s is not None:
        rows.append(("step before", f"{1000 * story.before_s:.0f} ms", "median, emulated accelerators"))
    if story.slowness is not None:
        rows += _say_slowness(story.slowness)
    else:
        words = "nobody was named: steps were uneven before, as if others used the machine; try once more"
        rows.append(("slow worker", "unseen", words))
    for recovery in story.recoveries:
        words = "lost, then the others went on: no restart, no checkpoint"
        rows.append((f"worker {recovery.worker} killed", f"{recovery.pause_s:.2f} s", words))
    if story.after_s is not None and story.ratio is not None:
        words = f"{story.ratio:.2f} times the one before; planned: {story.planned_ratio:.2f} times"
        rows.append(("step after", f"{1000 * story.after_s:.0f} ms", words))
    return rows


def _say_slowness(slow: Slowness) -> list[tuple[str, str, str]]:
    who = ", ".join(map(str, slow.ranks))
    rows = []
    if slow.slow_s is not None:
        rows.append((f"rank {who} slow", f"{1000 * slow.slow_s:.0f} ms", "a step, until something was done"))
    if slow.around_s is not None:
        words = f"a step with less work for it, for a pause of {slow.pause_s:.2f} s; then taken back"
        rows.append(("worked around", f"{1000 * slow.around_s:.0f} ms", words))
    words = f"lost to the slow worker in all; {slow.spared_s:.1f} s more, had nothing been done"
    return [*rows, ("the bill", f"{slow.lost_s:.1f} s", words)]


def _chart(seen: Sequence[Step]) -> Text:
    """Draw step times, one column per step, newest at the right."""
    durations = [step.duration_s for step in seen][-_WIDTH:]
    top_s = max([*durations, 0.001])
    text = Text(f"step time, up to {1000 * top_s:.0f} ms\n", style="bold")
    for row in reversed(range(_HEIGHT)):
        for duration_s in durations:
            level = duration_s / top_s * _HEIGHT - row
            text.append(_BARS[max(0, min(8, round(8 * level)))], style="cyan")
        text.append("\n")
    return text


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
