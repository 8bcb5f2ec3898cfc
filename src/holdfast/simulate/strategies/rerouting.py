"""What Holdfast and ReCycle share: survivors of a stage do the work of its dead, and roles can change."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.simulate.crew import Crew
from holdfast.simulate.models import Model
from holdfast.simulate.periods import Periods
from holdfast.simulate.strategies.base import Response, Situation, by_step, transfer_s

DETECT_S = 5.0
"""A node that vanishes is missed after torchft's default time-out; a killed process is after 0.02 s."""
REGROUP_S = 0.57
"""Measured on a re-routing prototype: survivors agree, build new groups, go on (gloo, 4 processes)."""
PLAN_S = 0.2
"""What a plan of 8 x 8 workers with 32 micro-batches may take."""
PAUSES = (
    f"pause {DETECT_S:g} s to miss a node (torchft's default) + {REGROUP_S:g} s to regroup (measured: "
    f"gloo, 4 processes) + {PLAN_S:g} s to plan; the interrupted step is redone; a newcomer, or a worker "
    "that changes its role, copies a stage's state at 10 Gb/s while all wait; a stage without survivors "
    "means a restart (Varuna's) from an hourly checkpoint"
)

Live = tuple[int, ...]
"""How many workers are alive at each stage."""
Throughput = Callable[[Live], float]
"""Samples/s; every stage has somebody."""
Pays = Callable[[Live, Live, float], bool]
"""Whether to move workers, from who is where now and then, and a guess how soon the next change comes."""


class Rerouting:
    """Keeps the crew, and turns changes of it into responses."""

    def __init__(self, model: Model, periods: Periods, throughput: Throughput, pays: Pays) -> None:
        self._model = model
        self._periods = periods
        self._throughput = throughput
        self._pays = pays
        self._crew = Crew(pp=model.pp, live=())
        self._changes = 0

    def begin(self, live: tuple[int, ...]) -> Response:
        """Everybody takes a role; nothing has to be copied yet."""
        self._crew = Crew(pp=self._model.pp, live=live)
        return self._train()

    def change(self, situation: Situation) -> Response:
        """Go on with who is there, from where the job is or, if a stage is lost, from the checkpoint."""
        self._changes += 1
        was_whole = self._crew.is_whole
        self._crew.leave(situation.left)
        is_lost = not self._crew.is_whole
        self._crew.come(situation.came)
        if is_lost:
            return self._restore(was_whole)
        return self._go_on(situation)

    def _go_on(self, situation: Situation) -> Response:
        has_moved = self._move_if_it_pays(situation.at_s / self._changes)
        pause_s = REGROUP_S + PLAN_S
        if has_moved or situation.came:
            pause_s += transfer_s(self._model)
        if situation.left:
            return _with(self._train(), failure_s=DETECT_S + pause_s, loses="step")
        return _with(self._train(), join_s=pause_s)

    def _restore(self, was_whole: bool) -> Response:
        """Start again from the checkpoint, as soon as there is a worker for every stage."""
        self._crew.deal()
        made = self._train()
        pause_s = self._model.restart_s - self._model.checkpoint_s if made.throughput else 0.0
        if was_whole:
            return _with(made, failure_s=DETECT_S + pause_s, loses="checkpoint")
        return _with(made, join_s=pause_s)

    def _move_if_it_pays(self, horizon_s: float) -> bool:
        now = self._crew.live
        moves = self._periods.normalized(now)
        then = tuple(
            count + sum((to == stage) - (start == stage) for start, to in moves)
            for stage, count in enumerate(now)
        )
        if not moves or not self._pays(now, then, horizon_s):
            return False
        self._crew.move(moves)
        return True

    def _train(self) -> Response:
        return by_step(self._model, self._throughput(self._crew.live) if self._crew.is_whole else 0.0)


def _with(response: Response, **changes: object) -> Response:
    return msgspec.structs.replace(response, **changes)
