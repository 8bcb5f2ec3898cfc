"""When to act: a fold over what is seen of a job. No clock, no I/O; the same looks give the same decisions.

The rule is that of who rents skis. An action is taken when what was lost since the onset has reached its
price, and what it is hoped to save is more: until then we have lost no more than twice what somebody who knew
the end would have. What is hoped follows from how long such incidents last. What was done is
checked: an action that does not bring a good part of what it promised is undone, and has to promise more the
next time.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast.mitigate.condition import Arrangement, Condition
from holdfast.mitigate.lasting import Lasting
from holdfast.mitigate.ledger import LEVELS, Incident, Level
from holdfast.mitigate.look import Culprits, Decision, Look
from holdfast.mitigate.model import Model
from holdfast.mitigate.options import Option, Ways
from holdfast.mitigate.prices import Deed, Prices
from holdfast.mitigate.trial import Pace, Trial, Verdict

_BOUND = 2.0
"""Times the cost of somebody who knew how long it would last."""
_DOUBT = 4.0
"""So much more than its price has to be saved before something is tried again that did not help."""
_FLAPPING = 50.0
"""Deeds of a level that are fewer prices apart than this are too many: each one more doubles the price."""


_KEPT_DEEDS = 100


class Mitigator:
    """Decides for one job; give it every look, and tell it what came of every decision."""

    def __init__(
        self, model: Model, prices: Prices, *, allowed: Collection[Level] = LEVELS, goes_home: bool = False
    ) -> None:
        self.allowed = frozenset(allowed)
        """May be changed at any time."""
        self._goes_home = goes_home
        """Whether the old places are taken again when all is well, which makes no step any shorter."""
        self.arrangement = Arrangement()
        self.incident: Incident | None = None
        self.closed: Incident | None = None
        """The last one that is over."""
        self.verdict: Verdict | None = None
        """On what was done last, once it has shown what it is worth."""
        self.lasting = Lasting()
        self.prices = prices
        self.model = model
        self._ways = Ways(model)
        self._condition = Condition()
        self._about: Culprits = frozenset()
        """Who was to blame last."""
        self._pending: Decision | None = None
        self._trial: Trial | None = None
        self._pace = Pace()
        self._missed_s = 0.0
        """Healthy step time that had passed under the condition before anybody knew of it."""
        self._now_s = 0.0
        self._deeds: list[tuple[float, Level, Culprits]] = []
        """What was done of late: when, and about whom."""
        self._failed: dict[tuple[Level, Culprits], int] = {}
        """What did not help about whom, and how often, while the incident lasts."""
        self._let_be: Culprits = frozenset()
        """About whom a person wants nothing to be done, while the incident lasts."""

    def see(self, look: Look) -> Decision | None:
        """Take in some steps, and return what is to be done now, if anything."""
        self._now_s += look.seconds
        self._notice(look)
        if self.incident is None and look.condition.is_healthy and not self.arrangement.is_original:
            self._resume(look)
        incident = self.incident
        if incident is None:
            return None
        is_trouble = not look.condition.is_healthy
        incident.pass_time(look.seconds, look.steps, look.healthy_s, is_trouble=is_trouble)
        self._pace.add(look)
        ways = self._ways.of(look.condition, self.arrangement)
        self._weigh(incident, look, ways)
        if self._pending is not None:
            return None
        if self._is_over(look.condition, ways):
            if self._is_homesick:
                self._pending = self._way_home(incident)
            else:
                self._close(incident)
            return self._pending
        self._pending = self._judge_trial(look, incident) or self._choose(incident, ways)
        if self._pending is not None and self._pending.is_dry:
            dry, self._pending = self._pending, None
            return dry
        return self._pending

    def done(self, pause_s: float) -> None:
        """Take note that the last decision was carried out, and for how long nobody trained because of it."""
        decision, self._pending = self._pending, None
        assert decision is not None
        self._now_s += pause_s
        self.prices.note(decision.deed, pause_s)
        if self.incident is not None:
            self.incident.pay(pause_s)
        self._deeds.append((self._now_s, decision.level, self._about))
        is_checked = decision.level != "undo"
        self._trial = (
            Trial(decision, self._condition.culprits, before=self._pace.slowdown) if is_checked else None
        )
        self.arrangement = decision.arrangement
        self._pace = Pace()

    def take_back(self) -> Decision | None:
        """Arrange all as it was, because a person wants it, and let those be who were the reason.

        None where nothing is in force, or a decision is being carried out.
        """
        if self.is_pending or self.arrangement == self._home:
            return None
        incident = self.incident or Incident(self._condition, step=0, lost_s=0.0, age_s=0.0)
        self._trial = None
        # Of a link that nothing goes over any more nobody can tell how it is; it was the reason all the same.
        self._let_be = self._condition.culprits or self._about
        self._pending = self._way_home(incident, is_asked=True)
        return self._pending

    def allow_again(self) -> None:
        """Act again upon whom a person wanted to be let be."""
        self._let_be = frozenset()

    @property
    def is_pending(self) -> bool:
        """Whether a decision is being carried out."""
        return self._pending is not None

    def refused(self) -> None:
        """Take note that the last decision came too late, and that nothing was changed."""
        self._pending = None

    def use(self, model: Model) -> None:
        """Decide by another model from now on: of the same job, for which other things are possible."""
        self.model = model
        self._ways = Ways(model)

    @property
    def is_on_trial(self) -> bool:
        """Whether what was done last has still to show what it is worth."""
        return self._trial is not None

    @property
    def _is_homesick(self) -> bool:
        """Whether workers are to go to their old places as soon as all is well."""
        return self._goes_home and bool(self.arrangement.holders) and "undo" in self.allowed

    @property
    def _home(self) -> Arrangement:
        """How all was at first; who has left does not come back."""
        return Arrangement(without=self.arrangement.without)

    def _way_home(self, incident: Incident, *, is_asked: bool = False) -> Decision:
        deed: Deed = "exchange" if self.arrangement.holders else "replan"
        now, then = (self.model.slowdown(self._condition, each) for each in (self.arrangement, self._home))
        return Decision(
            level="undo",
            deed=deed,
            arrangement=self._home,
            before=self.arrangement,
            gain=now - then,
            saved_s=0.0,
            lost_s=incident.lost_s,
            price_s=self.prices.of(deed) or 0.0,
            outlook_s=self.lasting.outlook(incident.kinds, incident.regime_s),
            is_asked=is_asked,
        )

    # --- what is going on ---------------------------------------------------------------------

    def _notice(self, look: Look) -> None:
        if look.condition == self._condition:
            return
        is_new = look.condition.culprits != self._condition.culprits
        self._about = look.condition.culprits or self._about
        self._missed_s = max(0.0, look.since_s - look.lost_s)
        self._condition = look.condition
        if self.incident is None:
            self.incident = Incident(
                look.condition,
                step=look.step if look.since_step is None else look.since_step,
                lost_s=look.lost_s,
                age_s=look.since_s,
            )
            self._failed = {}
        elif is_new:
            self.incident.regime_s = look.since_s
            self._trial = None  # What is measured from now on has other reasons too.
        self._pace = Pace()

    def _resume(self, look: Look) -> None:
        """Take up what somebody who is no more has left: an arrangement that holds up a healthy job."""
        if self._is_homesick or self._ways.of(look.condition, self.arrangement):
            self.incident = Incident(look.condition, step=look.step, lost_s=0.0, age_s=0.0)

    def _weigh(self, incident: Incident, look: Look, ways: list[Option]) -> None:
        measured = look.seconds / (look.steps * look.healthy_s) - 1.0 if look.steps else 0.0
        missed_s, self._missed_s = self._missed_s, 0.0
        for way in ways:
            # Not more than what is lost: the model may think that it is worse than it is.
            gain = min(way.gain, max(0.0, measured))
            incident.weigh(way.level, gain * (look.steps * look.healthy_s + missed_s))

    def _is_over(self, condition: Condition, ways: list[Option]) -> bool:
        return condition.is_healthy and not ways and self._trial is None

    def _close(self, incident: Incident) -> None:
        self.lasting.note(incident.kinds, incident.trouble_s)
        self._deeds = self._deeds[-_KEPT_DEEDS:]
        self.incident, self.closed = None, incident
        if self._about <= self._let_be:
            self._let_be = frozenset()

    # --- what to do about it ------------------------------------------------------------------

    def _choose(self, incident: Incident, ways: list[Option]) -> Decision | None:
        if self._condition.culprits <= self._let_be:
            ways = [way for way in ways if way.level == "undo"]
        outlook_s = self.lasting.outlook(incident.kinds, incident.regime_s)
        found = [
            decision for way in ways if (decision := self._consider(incident, way, outlook_s)) is not None
        ]
        allowed = [each for each in found if not each.is_dry]
        if allowed:
            return max(allowed, key=lambda each: each.gain * outlook_s - each.price_s)
        for each in found:
            incident.told.add(each.level)
        return found[-1] if found else None

    def _consider(self, incident: Incident, way: Option, outlook_s: float) -> Decision | None:
        """Return a decision if it is time for it."""
        price_s = self.prices.of(way.deed)
        is_dry = way.level not in self.allowed
        if price_s is None or (is_dry and way.level in incident.told):
            return None
        lost_s = incident.lost_s
        # By the model it may be more than was lost, which nobody could have saved.
        saved_s = min(incident.saved_s[way.level], max(0.0, lost_s))
        # Who acts has to come back one day, and pays for both ways.
        whole_s = price_s + (self.prices.of(way.way_back) or 0.0 if way.way_back is not None else 0.0)
        reluctance = self._reluctance(way.level, price_s)
        # Health lasts; so the way back is taken at once, unless that was too soon of late.
        needed_s = price_s * (reluctance - 1.0) if way.is_home else whole_s * reluctance
        hoped_s = saved_s * outlook_s / incident.regime_s if incident.regime_s > 0 else saved_s
        if self._failures(way.level):  # It did not help before: hopes do not count.
            hoped_s = min(hoped_s, saved_s)
        is_worth_it = hoped_s >= needed_s and lost_s >= whole_s
        is_overdue = _BOUND * saved_s >= needed_s + lost_s
        if not (is_worth_it or is_overdue):
            return None
        return Decision(
            level=way.level,
            deed=way.deed,
            arrangement=way.arrangement,
            before=self.arrangement,
            gain=way.gain,
            saved_s=saved_s,
            lost_s=lost_s,
            price_s=price_s,
            outlook_s=outlook_s,
            is_dry=is_dry,
        )

    def _reluctance(self, level: Level, price_s: float) -> float:
        """Return how many times its price something has to be worth, after all that was done of late."""
        recent = [
            at_s
            for at_s, done, about in self._deeds
            if done == level and about == self._about and self._now_s - at_s < _FLAPPING * price_s
        ]
        return _DOUBT ** self._failures(level) * 2.0 ** len(recent)

    def _failures(self, level: Level) -> int:
        return self._failed.get((level, self._condition.culprits), 0)

    def _judge_trial(self, look: Look, incident: Incident) -> Decision | None:
        """Return how to take back what was done last, if it has turned out not to help."""
        trial = self._trial
        if trial is None:
            return None
        verdict = trial.take(look)
        if verdict is None:
            return None
        self._trial, self.verdict = None, verdict
        if verdict.is_enough:
            return None
        decision = trial.decision
        failed = (decision.level, trial.culprits)
        self._failed[failed] = self._failed.get(failed, 0) + 1
        if "undo" not in self.allowed:
            return None
        deed: Deed = "replan" if decision.before.holders == self.arrangement.holders else "exchange"
        return Decision(
            level="undo",
            deed=deed,
            arrangement=decision.before,
            before=self.arrangement,
            gain=-verdict.gained,
            saved_s=0.0,
            lost_s=incident.lost_s,
            price_s=self.prices.of(deed) or 0.0,
            outlook_s=self.lasting.outlook(incident.kinds, incident.regime_s),
            is_rollback=True,
        )
