"""The screen of the demo and its summary."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from helpers import STAMP, make_death
from holdfast.cli.demo import shape_of
from holdfast.cli.screen import Screen, print_summary, states
from holdfast.errors import InputError
from holdfast.lab.story import Recovery, Story
from holdfast.membership import Needs
from holdfast.telemetry import Step
from holdfast.values import AnyEvent, AttemptStarted, Record, Regrouped, StepSeen, WorkerDied

STARTED = AttemptStarted(world_size=4, nodes=1, ranks=[0, 1, 2, 3], pids=[5, 6, 7, 8])
CONNECTED = Regrouped(generation=0, members=[0, 1, 2, 3], version=0, dead=[])
DIED = WorkerDied(death=make_death(rank=3, seen_s=1.75, signal="SIGKILL", exit_code=137))
GOES_ON = Regrouped(generation=1, members=[0, 1, 2], version=20, dead=[3])
EVENTS: list[AnyEvent] = [
    STARTED,
    CONNECTED,
    *(StepSeen(rank=rank, step=0) for rank in range(4)),
    DIED,
    GOES_ON,
]
RECOVERY = Recovery(rank=3, worker="1.1", died_s=1.5, resumed_s=2.0, pause_s=0.42)
STORY = Story(before_s=0.1, after_s=0.15, recoveries=[RECOVERY], planned_ratio=1.5)


def _records(*events: AnyEvent) -> list[Record]:
    return [Record(stamp=STAMP, event=event) for event in events]


def _text(drawn: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(drawn)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _summary(difference: str | None) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    print_summary(console, STORY, difference=difference, steps=40)
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, ["starting"] * 4),
        (2, ["connected"] * 4),
        (4, ["training", "training", "connected", "connected"]),
        (8, ["training", "training", "training", "dead"]),
    ],
)
def test_every_worker_has_a_word(count: int, words: list[str]) -> None:
    """It follows from the events so far."""
    assert states(_records(*EVENTS[:count]), 4) == words


def test_the_screen_shows_the_grid_the_loss_and_the_last_events() -> None:
    """A row for each pipeline, a column for each stage."""
    durations_s = [0.0, 0.2, 0.2, 0.2, 0.1, 0.6, 0.15]
    steps = [
        Step(rank=0, step=number, ended_s=1 + sum(durations_s[: number + 1]), duration_s=duration_s)
        for number, duration_s in enumerate(durations_s)
    ]
    screen = Screen(Needs(dp=2, pp=2, microbatches=4), steps=40)
    text = _text(screen.draw(steps, _records(*EVENTS), {0: "4.25", 1: "3.123456789"}))
    for words in (
        "pipeline 1  1.0 training  1.1 dead",
        "2 of 40",
        "3.1235",
        "1.1 killed",
        "rank 3 died: SIGKILL (exit code 137)",
        "3 workers go on from step 20",
    ):
        assert words in text


def test_a_screen_can_be_drawn_before_anything_happened() -> None:
    """Nobody is called alive that has not been seen."""
    text = _text(Screen(Needs(dp=2, pp=2, microbatches=4), steps=40).draw([], [], {}))
    assert text.count("starting") == 5
    assert "training" not in text


def test_the_summary_has_before_pause_after_and_the_planned_ratio() -> None:
    """With what was compared."""
    assert _summary(None) == [
        "step before 100 ms median, emulated accelerators",
        "slow worker unseen nobody was named: steps were uneven before, as if others used the machine; try "
        "once more",
        "worker 1.1 killed 0.42 s lost, then the others went on: no restart, no checkpoint",
        "step after 150 ms 1.50 times the one before; planned: 1.50 times",
        "loss same to the last bit as without the failure: 40 losses, and all parameters at the end",
    ]


def test_a_loss_that_differs_is_not_called_the_same() -> None:
    """The summary says what differs instead."""
    assert _summary("the loss of step 7 is 2.0")[-1] == "loss differs the loss of step 7 is 2.0"


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_workers_that_make_no_two_pipelines_are_refused(ranks: int) -> None:
    """A stage with one worker alone would not survive it."""
    with pytest.raises(InputError, match=f"--ranks is {ranks}, expected an even number from 4 up"):
        shape_of(ranks)
