"""Training through failures played out, node by node: what ``adaptive.train_through`` is held against.

The state of a replica is how many nodes of each stage are gone; the next failure or return is drawn for all
replicas at once. Checkpoints are written by the clock of the job; a restart forgets the work since the last.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.reliability.adaptive import Adaptation, Layout, lay_out, train_through
from holdfast.reliability.ettr import MIN_PER_DAY, Conditions
from holdfast.reliability.intervals import LEVEL, Floats
from holdfast.reliability.montecarlo import RUN_DAYS, Played, summarise

REPLICAS = 100
_LEAST_EVENTS, _MOST_EVENTS = 300, 3000
_MOST_STARTS = 10_000
"""Of a job that fails while it starts; one that needs more of them gets nowhere."""
_HOPELESS = 1e-4
_SETTLED = 5.0
"""Times of repair after which about as many nodes come back as go."""

Bools = NDArray[np.bool_]


def play_through(  # noqa: PLR0913 - the last three are for tests.
    conditions: Conditions,
    adaptation: Adaptation,
    rng: np.random.Generator,
    *,
    run_days: float = RUN_DAYS,
    replicas: int = REPLICAS,
    level: float = LEVEL,
) -> Played:
    """Return the ETTR over about so many days, once as many nodes are missing as there will be.

    Where little happens it is over more of them: at least some hundred failures and returns.
    """
    expected = train_through(conditions, adaptation)
    if expected.ettr < _HOPELESS:
        return Played(mean=0.0, low=0.0, high=0.0, error=0.0, replicas=replicas, run_days=run_days)
    per_day = expected.pauses_per_day + expected.restarts_per_day
    events = int(np.clip(run_days * per_day, _LEAST_EVENTS, _MOST_EVENTS))
    settling = int(min(_SETTLED * adaptation.repair_hours / 24 * per_day, _MOST_EVENTS))
    runs = _Runs(conditions, adaptation, replicas)
    runs.start(np.ones(replicas, dtype=bool), rng)
    runs.live(settling, rng)
    work_min, wall_min = runs.work, runs.wall.copy()
    runs.live(events, rng)
    wall_min = runs.wall - wall_min
    return summarise(
        (runs.work - work_min) / wall_min, run_days=float(wall_min.mean()) / MIN_PER_DAY, level=level
    )


class _Runs:
    """Replicas of one run, all times in minutes."""

    def __init__(self, conditions: Conditions, adaptation: Adaptation, replicas: int) -> None:
        self._conditions, self._adaptation = conditions, adaptation
        self._lay: Layout = lay_out(conditions, adaptation)
        self._down = np.zeros((replicas, self._lay.stages))
        self._at = np.zeros(replicas)
        """In the cycle of work and write."""
        self._saved, self._unsaved = np.zeros(replicas), np.zeros(replicas)
        self.wall = np.zeros(replicas)

    def start(self, who: Bools, rng: np.random.Generator) -> None:
        """Queue and restart, again and again while nodes fail meanwhile; then nobody is missing."""
        self._down[who], self._at[who], self._unsaved[who] = 0.0, 0.0, 0.0
        waiting = np.flatnonzero(who)
        for _ in range(_MOST_STARTS):
            if not waiting.size:
                return
            life = rng.exponential(1 / self._conditions.failures_per_min, waiting.size)
            self.wall[waiting] += rng.exponential(1.0, waiting.size) * self._conditions.queue_min
            self.wall[waiting] += np.minimum(life, self._conditions.restart_min)
            waiting = waiting[life < self._conditions.restart_min]
        raise AssertionError("a job that never starts is not played")

    @property
    def work(self) -> Floats:
        """What was done and is not lost."""
        return self._saved + self._unsaved

    def live(self, events: int, rng: np.random.Generator) -> None:
        """Go on through so many failures and returns."""
        for _ in range(events):
            self._go_on(rng)

    def _go_on(self, rng: np.random.Generator) -> None:
        """Go on until the next failure or return, and let it happen."""
        per_node = self._conditions.failures_per_min / self._conditions.nodes
        fails = (self._lay.stage_nodes - self._down) * per_node
        repair_min = 60 * self._adaptation.repair_hours
        mends = self._down / repair_min if repair_min > 0 else np.zeros_like(self._down)
        odds = np.concatenate([fails, mends], axis=1)
        totals = np.cumsum(odds, axis=1)
        self._work(rng.exponential(1.0, len(totals)) / totals[:, -1])
        drawn = rng.random(len(totals)) * totals[:, -1]
        which = np.minimum((totals <= drawn[:, None]).sum(axis=1), odds.shape[1] - 1)
        self._change(which, rng)

    def _change(self, which: NDArray[np.intp], rng: np.random.Generator) -> None:
        """Let a node of a stage go (the first half of the numbers) or come back (the second)."""
        rows, stages = np.arange(len(which)), self._lay.stages
        is_death = which < stages
        instant = is_death & (self._adaptation.repair_hours == 0) & (self._lay.tolerated > 0)
        self._down[rows, which % stages] += np.where(is_death, 1.0, -1.0) * ~instant
        is_lost = self._down[rows, which % stages] > self._lay.tolerated
        pauses = np.where(instant, 2.0, 1.0) * ~is_lost
        self.wall += pauses * self._adaptation.pause_s / 60
        if is_lost.any():
            self.start(is_lost, rng)

    def _work(self, length: Floats) -> None:
        """Work and write checkpoints for a time."""
        work_min = self._conditions.checkpoint_min
        cycle = work_min + self._conditions.write_min
        share = self._down.sum(axis=1) / self._conditions.nodes
        speed = np.maximum(0.0, 1 - self._adaptation.slope * share)
        then = self._at + length
        cycles = np.floor(then / cycle)
        worked = np.minimum(self._at, work_min)
        at = then - cycles * cycle
        until_saved = (cycles * work_min - worked) * speed
        has_saved = cycles > 0
        since = np.minimum(at, work_min) - np.where(has_saved, 0.0, worked)
        self._saved += np.where(has_saved, self._unsaved + until_saved, 0.0)
        self._unsaved = np.where(has_saved, 0.0, self._unsaved) + since * speed
        self.wall += length
        self._at = at
