"""When a job was slow, and by how much: from the changes that were told."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.values import ChangePoint, Episode

Level = tuple[int, float]
"""First step, and seconds."""


def episodes_of(
    changes: Sequence[ChangePoint], *, healthy_s: float, slow_s: float | None, last_step: int
) -> list[Episode]:
    """Return the episodes of one attempt; ``slow_s`` is how long a step takes now, if that is too long."""
    found: list[Episode] = []
    levels: list[Level] = []
    for change in sorted(changes, key=lambda change: (change.step, change.direction == "relief")):
        if levels:  # How long steps took until this change is best known now.
            levels[-1] = (levels[-1][0], change.before_s)
        if change.is_slow:
            levels.append((change.step, change.after_s))
        elif levels:
            found.append(_episode(levels, change.step, healthy_s, is_over=True))
            levels = []
    if levels:
        levels[-1] = (levels[-1][0], slow_s or levels[-1][1])
        found.append(_episode(levels, last_step + 1, healthy_s, is_over=False))
    return found


def _episode(levels: Sequence[Level], end: int, healthy_s: float, *, is_over: bool) -> Episode:
    """Join levels, each of which lasted until the next."""
    ends = [step for step, _ in levels[1:]] + [end]
    spans = [max(1, until - step) for (step, _), until in zip(levels, ends, strict=True)]
    mean_s = sum(span * level_s for span, (_, level_s) in zip(spans, levels, strict=True)) / sum(spans)
    return Episode(start=levels[0][0], end=end if is_over else None, slowdown=mean_s / healthy_s)
