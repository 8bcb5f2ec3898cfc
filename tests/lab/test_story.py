"""The figures of a broken run, from its steps and events alone."""

from __future__ import annotations

from holdfast.lab.story import Recovery, Slowdown, tell
from holdfast.values import AttemptEnded, Death, Fault, FaultInjected, Record, Stamp, Step

STAMP = Stamp(schema=1, event_id="x", at="2026-11-15T19:40:12+00:00", host="a", node=0, attempt=0)
FAULT = Fault(kind="slow_device", target=1, at_step=10, for_steps=5, severity=3.0)
DEATH = Death(rank=1, local_rank=1, node=0, host="a", pid=1, exit_code=137, signal="SIGKILL", seen_s=20.0)


def _steps(count: int, *, attempt: int, began_s: float) -> list[Step]:
    durations = [0.3 if attempt == 0 and FAULT.is_active(number) else 0.1 for number in range(count)]
    return [
        Step(
            rank=0,
            step=number,
            ended_s=began_s + sum(durations[: number + 1]),
            duration_s=duration,
            attempt=attempt,
        )
        for number, duration in enumerate(durations)
    ]


def test_a_slowdown_is_measured_against_the_steps_before_it() -> None:
    """In the attempt that was hit; a later attempt has steps of the same numbers."""
    steps = _steps(30, attempt=0, began_s=0.0) + _steps(30, attempt=1, began_s=50.0)
    story = tell(steps, [Record(stamp=STAMP, event=FaultInjected(fault=FAULT, step=10, via="worker"))])
    assert story.slowdowns == [Slowdown(fault=FAULT, before_s=0.1, during_s=0.3, after_s=0.1)]
    assert story.slowdowns[0].factor == 0.3 / 0.1
    assert story.healthy_s == 0.1


def test_a_pause_lasts_from_the_first_death_to_the_next_first_step() -> None:
    """Start-up and the first step are part of what a death costs."""
    steps = _steps(10, attempt=0, began_s=0.0) + _steps(10, attempt=1, began_s=23.0)
    story = tell(steps, [Record(stamp=STAMP, event=AttemptEnded(reason="failed", first=DEATH))])
    assert story.recoveries == [Recovery(rank=1, pause_s=23.1 - 20.0)]


def test_a_run_that_never_trained_has_no_figures() -> None:
    """Nothing is made up."""
    story = tell([], [Record(stamp=STAMP, event=AttemptEnded(reason="failed", first=DEATH))])
    assert (story.healthy_s, story.slowdowns, story.recoveries) == (None, [], [])
