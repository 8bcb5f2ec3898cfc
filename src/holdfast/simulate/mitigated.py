"""A job under trouble with somebody who decides: what it costs, checked after every look."""

from __future__ import annotations

from typing import Protocol

import msgspec

from holdfast.mitigate.condition import Arrangement, Condition
from holdfast.mitigate.look import Decision, Look
from holdfast.mitigate.model import Model
from holdfast.mitigate.prices import Deed
from holdfast.simulate.incidents import History, Weather

_LOOK_SHARE = 0.005
"""A look is at most this part of the time since something changed: decisions come late by no more."""


class Responder(Protocol):
    """Whoever decides; told of every look, and of what came of each decision."""

    def see(self, look: Look) -> Decision | None:
        """Take in some steps, and return what is to be done."""

    def done(self, pause_s: float) -> None:
        """Take note that it was done."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done."""

    at_s: float
    decision: Decision
    pause_s: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a history."""

    lost_s: float
    """Against a healthy job, over the whole history."""
    paused_s: float
    """Of that, pauses for what was done."""
    unnoticed_s: float
    """Of that, before anybody could know: the delay of detection."""
    acts: tuple[Act, ...]
    levels: tuple[tuple[float, float], ...]
    """When which step time over the healthy one began; 0 stands for a pause."""
    is_original: bool
    """Whether the job ended as it was arranged at first."""


def play(history: History, responder: Responder, *, delay_s: float = 0.0, look_s: float = 1.0) -> Outcome:
    """Let a history happen. Everything is constant within a look, so nothing is lost by long ones."""
    return _World(history, responder, delay_s, look_s).play()


def price_of(before: Arrangement, after: Arrangement) -> Deed | None:
    """Return what has to be done to get from one arrangement to another; None: nothing."""
    if before.without != after.without:
        return "restart"
    if before.holders != after.holders:
        return "exchange"
    return "replan" if before.reckoned != after.reckoned else None


class _World:
    """One history under way."""

    def __init__(self, history: History, responder: Responder, delay_s: float, look_s: float) -> None:
        self._history = history
        self._responder = responder
        self._truth = Weather(history.troubles)
        self._known = Weather(history.troubles, delay_s=delay_s)
        self._look_s = look_s
        self._model: Model = history.model()
        self._arrangement = Arrangement()
        self._now_s = self._changed_s = 0.0
        self._worked_s = self._paused_s = self._unnoticed_s = 0.0
        self._steps = 0.0
        self._acts: list[Act] = []
        self._levels: list[tuple[float, float]] = []
        self._pending_s = self._pending_lost_s = 0.0
        """Time and loss under a condition that nobody knows yet."""

    def play(self) -> Outcome:
        while self._now_s < self._history.horizon_s:
            self._pass()
        return Outcome(
            lost_s=self._now_s - self._worked_s,
            paused_s=self._paused_s,
            unnoticed_s=self._unnoticed_s,
            acts=tuple(self._acts),
            levels=tuple(self._levels),
            is_original=self._arrangement.is_original,
        )

    def _pass(self) -> None:
        """Let one look go by, and do what is decided after it."""
        truth, known = self._truth.at(self._now_s), self._known.at(self._now_s)
        end_s = min(self._truth.next_s(self._now_s), self._known.next_s(self._now_s), self._history.horizon_s)
        most_s = max(self._look_s, _LOOK_SHARE * (self._now_s - self._changed_s))
        seconds = min(end_s - self._now_s, most_s)
        slowdown = self._model.slowdown(truth, self._arrangement)
        assert slowdown < float("inf"), "the job was arranged so that nobody can train"
        self._mark(slowdown)
        worked_s = seconds / slowdown
        since_s, lost_s = self._unknown(truth, known, seconds, seconds - worked_s)
        self._now_s += seconds
        self._worked_s += worked_s
        self._steps += worked_s / self._history.healthy_s
        if self._now_s >= end_s:
            self._changed_s = self._now_s
        look = Look(
            step=int(self._steps),
            steps=worked_s / self._history.healthy_s,
            seconds=seconds,
            healthy_s=self._history.healthy_s,
            condition=known.without(self._arrangement.without),
            since_s=since_s,
            lost_s=lost_s,
        )
        decision = self._responder.see(look)
        if decision is not None and not decision.is_dry:
            self._act(decision)

    def _unknown(
        self, truth: Condition, known: Condition, seconds: float, lost_s: float
    ) -> tuple[float, float]:
        """Count what passes before it is known; once it is, return that."""
        if truth != known:
            self._unnoticed_s += lost_s
            self._pending_s += seconds
            self._pending_lost_s += lost_s
            return 0.0, 0.0
        found = (self._pending_s, self._pending_lost_s)
        self._pending_s = self._pending_lost_s = 0.0
        return found

    def _act(self, decision: Decision) -> None:
        self._check(decision)
        deed = price_of(self._arrangement, decision.arrangement)
        pause_s = self._history.prices[deed] if deed is not None else 0.0
        self._mark(0.0)
        self._acts.append(Act(at_s=self._now_s, decision=decision, pause_s=pause_s))
        self._now_s += pause_s
        self._paused_s += pause_s
        self._changed_s = self._now_s
        self._arrangement = decision.arrangement
        self._responder.done(pause_s)

    def _check(self, decision: Decision) -> None:
        arrangement, shape = decision.arrangement, self._history.shape
        assert decision.before == self._arrangement, "decided about another arrangement than the one in force"
        assert self._model.is_possible(arrangement), "nobody would be left to train"
        gone = set(self._arrangement.without)
        assert gone <= set(arrangement.without), f"ranks {gone} have left, and were given work"
        assert not gone & {rank for rank, _ in arrangement.reckoned}, f"ranks {gone} have left"
        holders = arrangement.holders or tuple(range(shape.places))
        assert sorted(holders) == list(range(shape.places)), f"places are held by {holders}"

    def _mark(self, slowdown: float) -> None:
        if not self._levels or self._levels[-1][1] != slowdown:
            self._levels.append((self._now_s, slowdown))
