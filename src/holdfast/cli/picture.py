"""A run as an SVG picture: step time over wall-clock time, faults as bands, deaths as lines.

Rectangles and lines written directly, so that the file needs nothing to be looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from holdfast.cli.words import name_fault
from holdfast.values import AttemptEnded, Fault, FaultInjected, Record, Step

_WIDTH, _HEIGHT = 880, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 20, 56, 46
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-size:16px;font-weight:600}"
    ".g{stroke:#d0d7de;stroke-width:1}.l{fill:none;stroke:#0969da;stroke-width:2;stroke-linejoin:round}"
    ".slow{fill:#e69f00;opacity:.22}.pause{fill:#cc3311;opacity:.16}.dead{stroke:#cc3311;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#9da7b1}.g{stroke:#3d444d}.l{stroke:#4493f8}}"
)


def draw(steps: Sequence[Step], records: Sequence[Record]) -> str:
    """Return the picture of a run; steps of one node, whose clock all times are of."""
    mine = sorted((step for step in steps if step.rank == 0 and step.duration_s > 0), key=lambda s: s.ended_s)
    if not mine:
        raise ValueError("no steps to draw")
    frame = _Frame(mine)
    faults = [record.event.fault for record in records if isinstance(record.event, FaultInjected)]
    deaths = [record.event for record in records if isinstance(record.event, AttemptEnded)]
    parts = [*frame.axes()]
    for fault in faults:
        parts += frame.band(mine, fault)
    for end in deaths:
        parts += frame.death(steps, end)
    for attempt in sorted({step.attempt for step in mine}):
        parts.append(frame.line([step for step in mine if step.attempt == attempt]))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Step time of a training run with faults">\n<style>{_STYLE}</style>\n{body}\n</svg>\n'
    )


class _Frame:
    """Maps times and durations to places in the picture."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._began_s = steps[0].ended_s - steps[0].duration_s
        self._span_s = steps[-1].ended_s - self._began_s
        self._top_s = 1.15 * max(step.duration_s for step in steps)

    def x(self, at_s: float) -> float:
        return _LEFT + (at_s - self._began_s) / self._span_s * (_WIDTH - _LEFT - _RIGHT)

    def y(self, duration_s: float) -> float:
        return _HEIGHT - _BOTTOM - duration_s / self._top_s * (_HEIGHT - _TOP - _BOTTOM)

    def axes(self) -> list[str]:
        """Draw title, grid and labels."""
        parts = [f'<text class="t" x="{_LEFT}" y="22">Step time of a real job, broken on purpose</text>']
        step_ms = _round_up(1000 * self._top_s / 4)
        for value in range(0, int(1000 * self._top_s), step_ms):
            y = self.y(value / 1000)
            parts.append(f'<line class="g" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value} ms</text>')
        every_s = _round_up(self._span_s / 6)
        for second in range(0, int(self._span_s) + 1, every_s):
            x = self.x(self._began_s + second)
            parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 24}" text-anchor="middle">{second} s</text>')
        note = "plain DDP over gloo, emulated accelerators; wall-clock time since the first step"
        parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end">{note}</text>')
        return parts

    def band(self, steps: Sequence[Step], fault: Fault) -> list[str]:
        """Draw a fault that lasted, over the steps of the attempt that it hit."""
        under = [step for step in steps if step.attempt == 0 and fault.is_active(step.step)]
        if not under or fault.kind == "kill":
            return []
        left, right = self.x(under[0].ended_s - under[0].duration_s), self.x(under[-1].ended_s)
        return [self._box("slow", left, right), self._label((left + right) / 2, name_fault(fault))]

    def death(self, steps: Sequence[Step], end: AttemptEnded) -> list[str]:
        """Draw a death, and the pause until the next step."""
        if end.first is None:
            return []
        died_s = end.first.seen_s
        later_s = [step.ended_s for step in steps if step.ended_s > died_s and step.step == 0]
        x, right = self.x(died_s), self.x(min(later_s, default=died_s))
        line = f'<line class="dead" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>'
        words = f"rank {end.first.rank} killed, all restarted"
        return [self._box("pause", x, right), line, self._label((x + right) / 2, words)]

    def line(self, steps: Sequence[Step]) -> str:
        """Draw the step times of one attempt."""
        points = " ".join(f"{self.x(step.ended_s):.1f},{self.y(step.duration_s):.1f}" for step in steps)
        return f'<polyline class="l" points="{points}"/>'

    def _box(self, kind: str, left: float, right: float) -> str:
        height = _HEIGHT - _TOP - _BOTTOM
        return (
            f'<rect class="{kind}" x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" height="{height}"/>'
        )

    def _label(self, x: float, words: str) -> str:
        return f'<text x="{x:.1f}" y="{_TOP - 8}" text-anchor="middle">{escape(words)}</text>'


def _round_up(value: float) -> int:
    """Return the next of 1, 2, 5, 10, 20, 50, …"""
    scale = 1
    while True:
        for digit in (1, 2, 5):
            if digit * scale >= value:
                return digit * scale
        scale *= 10
