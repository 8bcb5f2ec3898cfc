"""The rows of a Gantt chart at three levels of detail, so that no picture is too big to open.

*Operations*: a rectangle each, with its number and a tooltip. *Rows*: one outline per worker and kind.
*Stages*: for each stage, how many of its workers do what, over time; the rest would be finer than a pixel.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.plan.grid import show
from holdfast.plan.ops import KINDS, Op
from holdfast.plan.problem import Problem, Worker
from holdfast.plan.timing import Timed
from holdfast.serve.svg import Box, num, text

_MAX_SLICES = 160


class Rows:
    """Draws workers and stages of one timed schedule; ``pixels`` are those of one unit of time."""

    def __init__(self, problem: Problem, timed: Timed, *, left: float, pixels: float) -> None:
        self._problem, self._timed = problem, timed
        self.first = min(starts[0] for starts in timed.starts if starts)
        self._left, self._pixels = left, pixels

    def x(self, at: float) -> float:
        """Return the place of a time."""
        return self._left + (at - self.first) * self._pixels

    @property
    def width(self) -> float:
        return self._timed.makespan * self._pixels

    def worker(self, worker: Worker, y: float, height: float, *, is_detailed: bool) -> list[str]:
        """Draw one worker: its name, and what it does."""
        speed = self._problem.speed(worker)
        parts = [self._name(worker, speed, y, height)]
        whole = Box(self._left, y, self.width, height)
        parts.append(whole.draw("idle"))
        if speed == 0:
            parts.append(whole.draw("x"))
        if is_detailed:
            return parts + [part for row in self._row(worker) for part in self._op(worker, row, whole)]
        return parts + self._outlines(worker, whole)

    def _name(self, worker: Worker, speed: float, y: float, height: float) -> str:
        note, look = {0.0: (" dead", "bad"), 1.0: ("", "")}.get(speed, (f" x{speed:.3g}", "slow"))
        small = "" if height >= 12 else " d"
        return text(self._left - 8, y + height / 2 + 4, f"{worker}{note}", f"e {look}".rstrip() + small)

    def _row(self, worker: Worker) -> list[tuple[Op, float, float]]:
        index = worker.pipeline * self._problem.pp + worker.stage
        timed = self._timed
        return list(zip(timed.schedule.orders[index], timed.starts[index], timed.ends[index], strict=True))

    def _op(self, worker: Worker, row: tuple[Op, float, float], whole: Box) -> list[str]:
        op, start, end = row
        is_rerouted = op.pipeline != worker.pipeline
        width = max(0.5, (end - start) * self._pixels - 1)
        place = Box(self.x(start) + 0.5, whole.y, width, whole.height)
        what = f"{op.kind} of micro-batch {op.microbatch} of pipeline {op.pipeline} at stage {op.stage}"
        title = f"{what}, on {worker} from {show(start)} to {show(end)}"
        parts = [place.draw(f"{op.kind} r" if is_rerouted else op.kind, radius=2, title=title)]
        if is_rerouted:
            parts.append(place.draw("h"))
        names = [f"{op.pipeline}.{op.microbatch}"] * is_rerouted + [str(op.microbatch)]
        name = next((name for name in names if width >= 6.5 * len(name)), "")
        if name and whole.height >= 12:
            middle = place.x + width / 2
            parts.append(text(middle, whole.y + whole.height / 2 + 4, name, "o r" if is_rerouted else "o"))
        return parts

    def _outlines(self, worker: Worker, whole: Box) -> list[str]:
        """Draw all operations of one kind as one path; neighbours melt where they are too thin to part."""
        row = self._row(worker)
        shortest = min((end - start for _, start, end in row), default=0.0)
        gap = 0.6 if self._pixels * shortest >= 4 else 0.0
        parts = []
        for kind in KINDS:
            spans = [(start, end) for op, start, end in row if op.kind == kind]
            parts += self._path(kind, spans, gap, whole)
        foreign = [(start, end) for op, start, end in row if op.pipeline != worker.pipeline]
        return parts + self._path("h", foreign, gap, whole)

    def _path(self, kind: str, spans: Sequence[tuple[float, float]], gap: float, whole: Box) -> list[str]:
        if not spans:
            return []
        boxes = []
        y, height = num(whole.y), num(whole.height)
        for start, end in spans if gap else _melt(spans):
            width = num(max(0.3, (end - start) * self._pixels - gap))
            boxes.append(f"M{num(self.x(start))} {y}h{width}v{height}h-{width}z")
        return [f'<path class="{kind}" d="{"".join(boxes)}"/>']

    def stage(self, stage: int, y: float, height: float) -> list[str]:
        """Draw what the workers of a stage do over time, as shares of those alive, one kind upon another."""
        live = self._problem.live(stage)
        dead = self._problem.dp - len(live)
        slow = sum(self._problem.speeds[pipeline][stage] < 1 for pipeline in live)
        notes = [f"{dead} dead"] * (dead > 0) + [f"{slow} slow"] * (slow > 0)
        middle = y + height / 2
        parts = [text(self._left - 8, middle - 1 if notes else middle + 4, f"stage {stage}", "e")]
        if notes:
            look = "e bad" if dead else "e slow"
            parts.append(text(self._left - 8, middle + 12, ", ".join(notes), look))
        whole = Box(self._left, y, self.width, height)
        parts.append(whole.draw("idle"))
        kinds = self._shares(stage, live)
        floor = [0.0] * len(kinds["F"])
        for kind, shares in kinds.items():
            roof = [low + share for low, share in zip(floor, shares, strict=True)]
            if max(shares) > 0:
                parts.append(_area(kind, floor, roof, whole))
            floor = roof
        return parts

    def _shares(self, stage: int, live: Sequence[int]) -> dict[str, list[float]]:
        """Return per kind and slice of time which share of the live workers does it."""
        makespan = self._timed.makespan
        # Shorter than a micro-batch, a slice would show the beat of the operations instead of their shares.
        longest = max(costs.total for costs in self._problem.costs)
        count = max(10, min(_MAX_SLICES, int(makespan / longest)))
        shares = {kind: [0.0] * count for kind in KINDS}
        for pipeline in live:
            for op, start, end in self._row(Worker(pipeline, stage)):
                begin, stop = ((at - self.first) / makespan * count for at in (start, end))
                for number in range(int(begin), min(count, int(stop) + 1)):
                    overlap = min(stop, number + 1) - max(begin, number)
                    shares[op.kind][number] += max(0.0, overlap) / len(live)
        return shares


def _area(kind: str, floor: Sequence[float], roof: Sequence[float], whole: Box) -> str:
    wide = whole.width / len(floor)

    def point(number: int, share: float) -> str:
        y = whole.y + whole.height * (1 - min(share, 1.0))
        return f"{num(whole.x + (number + 0.5) * wide)} {num(y)}"

    there = [point(number, share) for number, share in enumerate(roof)]
    back = [point(number, share) for number, share in enumerate(floor)]
    return f'<path class="{kind}" d="M{"L".join(there + back[::-1])}z"/>'


def _melt(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Join operations that follow each other without a gap."""
    melted: list[tuple[float, float]] = []
    for start, end in spans:
        if melted and start <= melted[-1][1] + 1e-9 * abs(end):
            melted[-1] = (melted[-1][0], end)
        else:
            melted.append((start, end))
    return melted
