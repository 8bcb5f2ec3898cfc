"""The observer: one record per step whatever happens around it, and quiet when its own pieces fail."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.job.observer import Observer
from holdfast.job.ring import RingReader, ring_path
from holdfast.job.tally import MOST_ERRORS
from holdfast.telemetry import Step, StepFlag


class Optimizer:
    """All that the hook needs of one: it can be referred to weakly."""


@pytest.fixture
def observer(tmp_path: Path) -> Observer:
    """One whose hooks are not installed: the tests call them."""
    return Observer(tmp_path, rank=0)


def _steps(tmp_path: Path) -> list[Step]:
    return RingReader(ring_path(tmp_path, 0)).read()


def test_the_first_step_of_a_cycle_says_so(observer: Observer, tmp_path: Path) -> None:
    """Its beginning is not known; those after it are whole."""
    optimizer = Optimizer()
    for _ in range(3):
        observer.mark_update(optimizer, (), {})
    assert [step.flags for step in _steps(tmp_path)] == [StepFlag.FIRST, 0, 0]
    assert [step.cycle for step in _steps(tmp_path)] == [1, 1, 1]


def test_a_record_that_cannot_be_written_spoils_no_other(
    observer: Observer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers go on, the next step is timed from the one that was lost."""
    optimizer, append, fails = Optimizer(), observer._ring.append, [False, True, False]

    def sometimes(*args: int) -> None:
        if fails.pop(0):
            raise OSError("no")
        append(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(observer._ring, "append", sometimes)
    for _ in range(3):
        observer.mark_update(optimizer, (), {})
    steps = _steps(tmp_path)
    assert ([step.step for step in steps], observer.steps, observer.errors) == ([0, 2], 3, 1)
    assert steps[1].duration_s < steps[1].ended_s - steps[0].ended_s


def test_a_listener_that_fails_is_counted(observer: Observer, tmp_path: Path) -> None:
    """The step that it was told of is recorded."""
    heard: list[int] = []
    observer.listeners += [heard.append, lambda number: heard.remove(99)]
    for _ in range(2):
        observer.mark_update(Optimizer(), (), {})
    assert (heard, observer.errors, len(_steps(tmp_path))) == ([0, 1], 2, 2)


def test_too_many_failures_end_the_observation(observer: Observer, tmp_path: Path) -> None:
    """The hooks are out of the way for good, and nothing is counted any more."""
    for _ in range(MOST_ERRORS + 100):
        observer.mark_update(object(), (), {})
    assert observer.errors == MOST_ERRORS + 1
    observer.mark_update(Optimizer(), (), {})
    assert _steps(tmp_path) == []


def test_the_thread_that_updates_first_is_the_one_that_trains(observer: Observer, tmp_path: Path) -> None:
    """Once a step has ended, updates of other threads are not listened to."""
    optimizer = Optimizer()

    def train() -> None:
        for _ in range(3):
            observer.mark_update(optimizer, (), {})

    for _ in range(2):
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        train()
    assert len(_steps(tmp_path)) in {3, 6}  # The second thread may have been given the first one's number.
    assert observer.errors == 0


def test_an_optimizer_made_anew_in_every_step_is_one_cycle(observer: Observer, tmp_path: Path) -> None:
    """As in loops that learn to learn; it takes the place of the one before."""
    for _ in range(50):
        observer.mark_update(Optimizer(), (), {})
    assert {step.cycle for step in _steps(tmp_path)} == {1}
    assert len(_steps(tmp_path)) == 50
