"""A run as an SVG picture: step time over wall-clock time, deaths as lines, what they cost as bands.

Rectangles and lines written directly, so that the file needs nothing to be looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from holdfast.lab.story import Recovery, Story, witnessed
from holdfast.telemetry import Step

_WIDTH, _HEIGHT = 880, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 24, 56, 46
_STYLE = (
    ".p{fill:#fff}text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-size:16px;font-weight:600}"
    ".g{stroke:#d0d7de;stroke-width:1}.l{fill:none;stroke:#0969da;stroke-width:2;stroke-linejoin:round}"
    ".m{stroke:#0969da;stroke-dasharray:5 4;opacity:.6}"
    ".pause{fill:#cc3311;opacity:.2}.dead{stroke:#cc3311;stroke-width:2}"
    "@media(prefers-color-scheme:dark){.p{fill:#15191e}text{fill:#9da7b1}.g{stroke:#3d444d}.l,.m{stroke:#4493f8}"
    ".dead{stroke:#ff7b72}.pause{fill:#ff7b72}}"
)
_TITLE = "Step time of a real pipeline job: a worker is slow for a while, another is killed"
_NOTE = "emulated accelerators over gloo; wall-clock time since the first step"


def draw(steps: Sequence[Step], story: Story) -> str:
    """Return the picture of a run; steps of one node, whose clock all times are of."""
    seen = witnessed(steps, {recovery.rank for recovery in story.recoveries})
    if not seen:
        raise ValueError("no steps to draw")
    frame = _Frame(seen, {recovery.resumed_s for recovery in story.recoveries})
    parts = [f'<rect class="p" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>', *frame.axes()]
    for recovery in story.recoveries:
        parts += frame.death(recovery)
    parts += frame.curves()
    parts += frame.medians(story)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{_TITLE}">\n<style>{_STYLE}</style>\n{body}\n</svg>\n'
    )


class _Frame:
    """Maps times and durations to places; a step that a death cut short is a band, not part of a curve."""

    def __init__(self, steps: Sequence[Step], cuts_s: set[float]) -> None:
        self._began_s = steps[0].ended_s - steps[0].duration_s
        self._ended_s = steps[-1].ended_s
        self._cuts_s = [self._began_s, *sorted(cuts_s), float("inf")]
        self._whole = [step for step in steps if step.ended_s not in cuts_s] or list(steps)
        self._top_s = 1.25 * max(step.duration_s for step in self._whole)

    def x(self, at_s: float) -> float:
        share = (at_s - self._began_s) / (self._ended_s - self._began_s)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, duration_s: float) -> float:
        return _HEIGHT - _BOTTOM - duration_s / self._top_s * (_HEIGHT - _TOP - _BOTTOM)

    def axes(self) -> list[str]:
        """Draw title, grid and labels."""
        parts = [f'<text class="t" x="{_LEFT}" y="22">{_TITLE}</text>']
        step_ms = _round_up(1000 * self._top_s / 4)
        for value in range(0, int(1000 * self._top_s), step_ms):
            y = self.y(value / 1000)
            parts.append(f'<line class="g" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value} ms</text>')
        span_s = self._ended_s - self._began_s
        for second in range(0, int(span_s) + 1, _round_up(span_s / 6)):
            x = self.x(self._began_s + second)
            parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 24}" text-anchor="middle">{second} s</text>')
        parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 8}" text-anchor="end">{_NOTE}</text>')
        return parts

    def death(self, recovery: Recovery) -> list[str]:
        """Draw a death, and the time until the step that it cut short was done."""
        left, right, height = self.x(recovery.died_s), self.x(recovery.resumed_s), _HEIGHT - _TOP - _BOTTOM
        words = escape(f"{recovery.worker} killed, {recovery.pause_s:.2f} s lost")
        return [
            f'<rect class="pause" x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" height="{height}"/>',
            f'<line class="dead" x1="{left:.1f}" x2="{left:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>',
            f'<text x="{left:.1f}" y="{_TOP - 8}" text-anchor="middle">{words}</text>',
        ]

    def curves(self) -> list[str]:
        """Draw the step times between deaths."""
        parts = []
        for begin_s, end_s in pairwise(self._cuts_s):
            meant = [step for step in self._whole if begin_s <= step.ended_s < end_s]
            points = " ".join(f"{self.x(step.ended_s):.1f},{self.y(step.duration_s):.1f}" for step in meant)
            parts += [f'<polyline class="l" points="{points}"/>'] * bool(meant)
        return parts

    def medians(self, story: Story) -> list[str]:
        """Draw the median before and after as lines with their numbers."""
        first_s = min((recovery.died_s for recovery in story.recoveries), default=self._ended_s)
        last_s = max((recovery.resumed_s for recovery in story.recoveries), default=self._ended_s)
        parts = []
        for value_s, left_s, right_s in (
            (story.before_s, self._began_s, first_s),
            (story.after_s, last_s, self._ended_s),
        ):
            if value_s is not None:
                y, left, right = self.y(value_s), self.x(left_s), self.x(right_s)
                parts.append(f'<line class="m" x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
                middle, words = (left + right) / 2, f"median {1000 * value_s:.0f} ms"
                # At the bottom, where no curve is: it jitters about its median.
                low = self.y(0) - 10
                parts.append(f'<text x="{middle:.1f}" y="{low:.1f}" text-anchor="middle">{words}</text>')
        return parts


def _round_up(value: float) -> int:
    """Return the next of 1, 2, 5, 10, 20, 50, …"""
    scale = 1
    while True:
        for digit in (1, 2, 5):
            if digit * scale >= value:
                return digit * scale
        scale *= 10
