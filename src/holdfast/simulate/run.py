"""One strategy through one trace: every second of the wall clock ends up in exactly one account."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from holdfast.simulate.fitting import Change, Fitted
from holdfast.simulate.kernel import Event, Kernel
from holdfast.simulate.pace import Pace, Spent
from holdfast.simulate.strategies.base import Situation, Strategy

NODE_START_S = 45.0
"""From a node that is there to a worker that can join, for everybody (Oobleck's artifact)."""
CHECKPOINT_EVERY_S = 3600.0
"""How often strategies that need none write a checkpoint in the background, in case a stage is lost."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy made of a trace."""

    strategy: str
    duration_s: float
    samples: float
    spent: Spent
    failures: int
    """Moments at which workers were lost."""
    joins: int
    """Moments at which workers came."""
    series: tuple[tuple[float, float], ...]
    """Samples/s from each moment on."""

    @property
    def throughput(self) -> float:
        """Samples per second of wall clock, all pauses included."""
        return self.samples / self.duration_s


def run(fitted: Fitted, strategy: Strategy, watch: Callable[[float], None] | None = None) -> Outcome:
    """Return the outcome; ``watch`` is called with the time after every event."""
    return _World(fitted, strategy, watch or (lambda at_s: None)).run()


class _World:
    """Who is there, what the strategy does about it, and where the time goes."""

    def __init__(self, fitted: Fitted, strategy: Strategy, watch: Callable[[float], None]) -> None:
        self._fitted = fitted
        self._strategy = strategy
        self._watch = watch
        self._kernel = Kernel()
        self._live = list(fitted.live)
        self._starting: dict[int, float] = {}
        """Workers that are about to join, with the time at which they will."""
        self._pace = Pace(strategy.begin(fitted.live))
        self._series = [(0.0, self._pace.shown)]
        self._resume: Event | None = None
        self._failures = self._joins = 0

    def run(self) -> Outcome:
        for change in self._fitted.changes:
            self._schedule(change.at_s, partial(self._leave_and_start, change))
        for hour in range(1, int(self._fitted.duration_s / CHECKPOINT_EVERY_S) + 1):
            self._schedule(hour * CHECKPOINT_EVERY_S, self._pace.save)
        self._kernel.run(self._fitted.duration_s)
        self._pace.pass_until(self._kernel.now_s)
        return Outcome(
            strategy=self._strategy.name,
            duration_s=self._fitted.duration_s,
            # What was added in pieces and taken back in one may be below 0 in its last digits.
            samples=max(0.0, self._pace.samples),
            spent=self._pace.spent,
            failures=self._failures,
            joins=self._joins,
            series=tuple(self._series),
        )

    def _schedule(self, at_s: float, action: Callable[[], None]) -> Event:
        def happen() -> None:
            self._pace.pass_until(self._kernel.now_s)
            action()
            self._watch(self._kernel.now_s)

        return self._kernel.at(at_s, happen)

    def _leave_and_start(self, change: Change) -> None:
        """Let workers go at once, and others begin to start up."""
        left = tuple(worker for worker in change.left if worker in self._live)
        self._live = [worker for worker in self._live if worker not in left]
        for worker in change.left:
            self._starting.pop(worker, None)
        if left:
            self._failures += 1
            self._tell(Situation(at_s=change.at_s, live=tuple(self._live), left=left))
        if change.came:
            ready_s = change.at_s + NODE_START_S
            self._starting |= dict.fromkeys(change.came, ready_s)
            self._schedule(ready_s, partial(self._join, change.came))

    def _join(self, workers: tuple[int, ...]) -> None:
        """Let those join that started up and have not left meanwhile."""
        came = tuple(worker for worker in workers if self._starting.get(worker) == self._kernel.now_s)
        for worker in came:
            del self._starting[worker]
        self._live = sorted([*self._live, *came])
        if came:
            self._joins += 1
            self._tell(Situation(at_s=self._kernel.now_s, live=tuple(self._live), came=came))

    def _tell(self, situation: Situation) -> None:
        response = self._strategy.change(situation)
        if response is None:
            return
        self._pace.answer(response)
        if self._resume is not None:
            self._resume.cancel()
        pause_s = self._pace.pause_s
        self._show(0.0 if pause_s else self._pace.shown)
        if pause_s:
            self._resume = self._schedule(situation.at_s + pause_s, lambda: self._show(self._pace.shown))

    def _show(self, throughput: float) -> None:
        now_s = self._kernel.now_s
        if self._series[-1][0] == now_s:
            self._series.pop()
        if not self._series or self._series[-1][1] != throughput:
            self._series.append((now_s, throughput))
