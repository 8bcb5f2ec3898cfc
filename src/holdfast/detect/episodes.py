"""When a job was slow, and by how much: from the changes that were told."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.findings import ChangePoint, Episode


class _Stretch(msgspec.Struct):
    """A time with one level, until the next begins."""

    start: int
    level_s: float
    before_s: float
    is_slow: bool


def episodes_of(
    changes: Sequence[ChangePoint], *, healthy_s: float, slow_s: float | None, last_step: int
) -> list[Episode]:
    """Return the episodes of one attempt; ``slow_s`` is how long a step takes now, if that is too long."""
    stretches: list[_Stretch] = []
    for change in changes:
        if stretches and change.step <= stretches[-1].start:
            _look_back(stretches, change)
            continue
        if stretches:  # How long steps took until this change is best known now.
            stretches[-1].level_s = change.before_s
        stretches.append(_Stretch(change.step, change.after_s, change.before_s, change.is_slow))
    if stretches and stretches[-1].is_slow and slow_s is not None:
        stretches[-1].level_s = slow_s
    return _join(stretches, healthy_s, last_step)


def _look_back(stretches: list[_Stretch], change: ChangePoint) -> None:
    """Take in what was told in hindsight: since then the job was never as fast as it can be."""
    for stretch in stretches:
        stretch.is_slow = stretch.is_slow or stretch.start >= change.step
    if change.step < stretches[0].start:
        stretches.insert(0, _Stretch(change.step, change.after_s, change.before_s, is_slow=True))


def _join(stretches: Sequence[_Stretch], healthy_s: float, last_step: int) -> list[Episode]:
    found: list[Episode] = []
    together: list[_Stretch] = []
    for stretch in stretches:
        if stretch.is_slow:
            together.append(stretch)
        elif together:
            found.append(_episode(together, stretch.start, healthy_s, is_over=True))
            together = []
    if together:
        found.append(_episode(together, last_step + 1, healthy_s, is_over=False))
    return found


def _episode(stretches: Sequence[_Stretch], end: int, healthy_s: float, *, is_over: bool) -> Episode:
    ends = [stretch.start for stretch in stretches[1:]] + [end]
    spans = [max(1, until - stretch.start) for stretch, until in zip(stretches, ends, strict=True)]
    mean_s = sum(span * each.level_s for span, each in zip(spans, stretches, strict=True)) / sum(spans)
    # What is healthy was perhaps known better then than it is now.
    base_s = min(healthy_s, stretches[0].before_s)
    return Episode(start=stretches[0].start, end=end if is_over else None, slowdown=mean_s / base_s)
