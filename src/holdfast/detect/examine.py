"""A whole series at once: all steps of an attempt through a detector, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from holdfast.detect.episodes import episodes_of
from holdfast.findings import ChangePoint, Episode
from holdfast.telemetry import StepTime


class Detector(Protocol):
    """Takes steps one by one and says what changed."""

    @property
    def healthy_s(self) -> float | None:
        """How long a step takes when all is well; None: not known yet."""

    @property
    def slow_s(self) -> float | None:
        """How long a step takes now, while the job is slow."""

    def update(self, step: int, duration_s: float, work: float | None = None) -> list[ChangePoint]:
        """Take in a step that has ended; return what is now known to have changed."""


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in one attempt of a job."""

    steps: list[StepTime]
    change_points: list[ChangePoint]
    episodes: list[Episode]
    healthy_s: float | None


def examine(steps: Sequence[StepTime], detector: Detector) -> Examined:
    """Run a detector over the steps of one attempt, of which there is at least one."""
    changes = [change for each in steps for change in detector.update(each.step, each.duration_s, each.work)]
    healthy_s = detector.healthy_s
    episodes = []
    if healthy_s is not None:
        last_step = steps[-1].step
        episodes = episodes_of(changes, healthy_s=healthy_s, slow_s=detector.slow_s, last_step=last_step)
    return Examined(
        steps=list(steps),
        change_points=changes,
        episodes=episodes,
        healthy_s=healthy_s,
    )
