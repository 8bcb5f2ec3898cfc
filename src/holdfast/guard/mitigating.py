"""Acts on what the judge found: looks in, wishes out, and what became of them.

The decisions are ``holdfast.mitigate``'s. Only jobs whose workers meet, in the hub or by ``holdfast.Shares``,
can be arranged anew while they run. Any other can be restarted without a slow node, where another stands by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.diagnose.lookout import Lookout, Memory, Trouble
from holdfast.diagnose.speeds import Speeds
from holdfast.findings import Suspect
from holdfast.guard.arranging import DATA_SHARE, arrangement_of, model_of, moves_between
from holdfast.guard.say import Say
from holdfast.job.wishes import Crew, Granted, read_crew, read_granted, read_wish, write_wish
from holdfast.membership import Arranged
from holdfast.mitigate.aside import Aside
from holdfast.mitigate.condition import Condition, SlowLink, condition_of, make_speeds
from holdfast.mitigate.decide import Mitigator
from holdfast.mitigate.ledger import Level
from holdfast.mitigate.look import Decision, Look
from holdfast.mitigate.model import Model
from holdfast.mitigate.prices import Deed, Prices
from holdfast.mitigate.telling import tell_applied, tell_closed, tell_decision, tell_dropped, tell_verified
from holdfast.mitigate.trial import Verdict
from holdfast.values import AnyEvent, Applied, Decided, Dropped, IncidentClosed, Verified

_PATIENCE_S = 60.0
"""How long a wish may take to be granted."""
_RECENT_STEPS = 40
_MOST_BLAMED = 2
"""Where more than one in so many ranks is said to be slow, nobody is slower than the others."""
_BAD_WEATHER = 1.1
"""Where everybody takes so much longer for the same work, nobody can tell what something was worth."""
_GUESSES_S: dict[Deed, float] = {"replan": 0.5, "exchange": 1.0}
"""Before anything was done here: a few times what it has taken in other jobs. What a restart costs is what
the start has cost."""


class Mitigation:
    """Of one job; called by its judge, once a second."""

    def __init__(
        self,
        rings: Path,
        *,
        allowed: Callable[[], frozenset[Level]],
        tell: Callable[[AnyEvent], None],
        say: Say,
    ) -> None:
        self._rings = rings
        self._allowed = allowed
        self._tell = tell
        self._say = say
        self._prices = Prices(_GUESSES_S)
        self._speeds = Speeds()
        self._links: tuple[SlowLink, ...] = ()
        self._since_s = 0.0
        """When the last trouble began that somebody was named for."""
        self._aside = Aside()
        self._memory: Memory | None = None
        """What a healthy step is, while work is shared out in another way,"""
        self._cycle = self._seen_cycle = 0
        """and what a step was when that was decided, and when it was looked at last."""
        self._mitigator: Mitigator | None = None
        self._granted: Granted | None = None
        self._crew: Crew | None = None
        self._told: dict[int, float] = {}
        """Speeds of ranks that cannot be measured step by step, as they were named."""
        self._healthy_s: float | None = None
        self._end: tuple[int, float] | None = None
        """The step that was last seen to end, and when."""
        self._news: tuple[int, float] | None = None
        """Since which step and when something is wrong that nobody has heard of yet."""
        self._decision: Decision | None = None
        self._number = 0
        self._wished_s = 0.0
        self._left_over: int | None = None
        """The wish by which a person has what was done before somebody died taken back."""
        self.least_confidence = 0.6
        """Who is named with less is not acted upon; may be changed at any time."""

    def blame(self, suspects: Sequence[Suspect], trouble: Trouble) -> None:
        """Take in who slows the job down, since when, and what the ranks were like before."""
        found = condition_of(suspects, least=self.least_confidence)
        if len(found.speeds) > len(trouble.healthy) / _MOST_BLAMED:
            found = msgspec.structs.replace(found, speeds=())
        self._speeds.follow([rank for rank, _ in found.speeds], trouble.healthy)
        self._told = {rank: speed for rank, speed in found.speeds if rank not in self._speeds.ranks}
        self._links = tuple(
            SlowLink(link.first, link.second, 1 + (link.factor - 1) / DATA_SHARE) for link in found.links
        )
        self._news = (trouble.since_step, trouble.since_s)
        self._since_s = trouble.since_s

    def relieve(self) -> None:
        """Take in that the job is as fast as before; of some ranks that is measured."""
        if self._mitigator is not None and self._mitigator.arrangement.holders:
            self._put_aside()
        self._links = ()
        self._told = {}

    def look(self, lookout: Lookout, now_s: float) -> None:
        """Look at the last second, and do what is to be done."""
        self._follow()
        end = lookout.last_end
        mitigator = self._mitigator
        if end is None or mitigator is None:
            return
        is_calm = mitigator.incident is None and mitigator.arrangement.is_original
        if is_calm or self._healthy_s is None:
            self._healthy_s = lookout.healthy_s or self._healthy_s
        self._price_restart(end[1])
        before, self._end = self._end, end
        if before is None or end[0] <= before[0] or self._healthy_s is None:
            return
        self._see(mitigator, lookout, end[0] - before[0], end[1] - before[1])
        self._drop_late(now_s)

    # --- what a person wants ------------------------------------------------------------------

    def undo(self) -> Literal["begun", "nothing", "later"]:
        """Take back what is in force, and leave it at that; later: a decision is being carried out."""
        mitigator = self._mitigator
        if mitigator is not None and mitigator.is_pending:
            return "later"
        if mitigator is None:
            return self._undo_left_over()
        decision = mitigator.take_back()
        if decision is None:
            return "nothing"
        self._decide(mitigator, decision)
        return "begun"

    def _undo_left_over(self) -> Literal["begun", "nothing"]:
        """Share out the work evenly in a job that misses somebody: what was done before is still in force."""
        last, granted = read_wish(self._rings), self._granted
        if last is None or granted is None or granted.wish != last.number or not last.speeds:
            return "nothing"
        self._number = self._left_over = last.number + 1
        event = Decided(
            number=self._number,
            level="undo",
            since_step=granted.version,
            speeds={},
            gain=0.0,
            healthy_s=self._healthy_s or 0.0,
            saved_s=0.0,
            lost_s=0.0,
            price_s=self._prices.of("replan") or 0.0,
            outlook_s=0.0,
            is_asked=True,
        )
        self._tell(event)
        self._say.line(tell_decision(event))
        write_wish(self._rings, Arranged(number=self._number))
        return "begun"

    def allow_again(self) -> None:
        """Act again upon what a person has taken back."""
        if self._mitigator is not None:
            self._mitigator.allow_again()

    # --- what is in force ---------------------------------------------------------------------

    def _follow(self) -> None:
        """Notice that the workers go on in another way than before."""
        self._follow_crew()
        granted = read_granted(self._rings)
        if granted is None or granted == self._granted:
            return
        is_ours = self._decision is not None and granted.wish == self._number
        self._granted = granted
        if is_ours:
            return  # The next look tells what it took.
        self._forget()
        last = read_wish(self._rings)
        if last is not None:  # Of a guard before this one, perhaps: numbers only go up.
            self._number = max(self._number, last.number)
        if granted.wish == self._left_over:
            self._left_over = None
            self._tell_applied(
                Applied(number=granted.wish, level="undo", version=granted.version, pause_s=0.0)
            )
        arrangement = arrangement_of(granted, last)
        if arrangement is not None:
            self._mitigator = self._make_mitigator(model_of(self._crew, granted))
            self._mitigator.arrangement = arrangement

    def _make_mitigator(self, model: Model) -> Mitigator:
        return Mitigator(model, self._prices, allowed=self._allowed(), goes_home=True)

    def _follow_crew(self) -> None:
        """Notice who is there, and how many nodes stand by."""
        crew, before = read_crew(self._rings), self._crew
        if crew is None or crew == before:
            return
        self._crew = crew
        if before is None or crew.attempt != before.attempt:
            self._forget()
            self._granted = None
        model = model_of(crew, self._granted)
        if self._mitigator is not None:
            self._mitigator.use(model)
        elif self._granted is None:
            self._mitigator = self._make_mitigator(model)

    def _price_restart(self, end_s: float) -> None:
        """Take in what a start costs: until the first step that is seen."""
        if self._crew is not None and self._end is None and self._prices.of("restart") is None:
            self._prices.expect("restart", max(1.0, end_s - self._crew.started_s))

    def _forget(self) -> None:
        """Begin anew: somebody has died or come back, and what was known is about another job."""
        self._mitigator = self._decision = self._end = self._news = None
        self._speeds.forget()
        self._links = ()
        self._aside = Aside()
        self._memory = None
        self._told = {}

    # --- decisions ----------------------------------------------------------------------------

    def _see(self, mitigator: Mitigator, lookout: Lookout, steps: int, seconds: float) -> None:
        assert self._healthy_s is not None
        if self._is_granted() and self._is_begun(lookout):
            pause_s = max(0.0, seconds - steps * (lookout.recent_step_s() or self._healthy_s))
            seconds -= pause_s
            self._done(mitigator, pause_s)
        self._seen_cycle = lookout.cycle
        self._recall(mitigator, lookout)
        mitigator.allowed = self._allowed()
        closed, verdict = mitigator.closed, mitigator.verdict
        decision = mitigator.see(self._make_look(lookout, steps, seconds))
        if mitigator.verdict is not None and mitigator.verdict is not verdict:
            self._tell_verdict(mitigator.verdict)
        if decision is not None:
            self._decide(mitigator, decision)
            self._remember(mitigator, lookout)
        if mitigator.closed is not closed:
            self._tell_bill(mitigator)
            self._memory = None  # Where steps were the same all along, nothing was forgotten.
        if not mitigator.arrangement.holders:
            self._aside.take_back(self._now_s)
        elif not mitigator.is_on_trial:
            self._put_aside()

    def _remember(self, mitigator: Mitigator, lookout: Lookout) -> None:
        """Note what a healthy step is, before work is shared out in another way."""
        if self._memory is None and not mitigator.arrangement.reckoned:
            self._memory = lookout.remember()

    def _recall(self, mitigator: Mitigator, lookout: Lookout) -> None:
        """Hold the job against what it was, once everybody has as much to do as then."""
        is_same = not mitigator.arrangement.reckoned and not mitigator.is_pending
        if self._memory is not None and is_same and lookout.cycle != self._cycle:
            lookout.recall(self._memory)
            self._memory = None

    def _put_aside(self) -> None:
        """Take note that slow links carry nothing any more."""
        if self._links:
            self._aside.put(self._links, since_s=self._since_s, now_s=self._now_s)
        self._links = ()

    def _make_look(self, lookout: Lookout, steps: int, seconds: float) -> Look:
        assert self._healthy_s is not None
        last = lookout.last_step
        condition = Condition(
            speeds=make_speeds(self._told | self._speeds.of(lookout.steps_of(since=last - _RECENT_STEPS))),
            links=tuple(sorted({*self._links, *self._aside.links(self._now_s)})),
        )
        since_s, lost_s, since_step = 0.0, 0.0, last
        if self._news is not None and not condition.is_healthy and self._end is not None:
            since_step, began_s = self._news
            since_s = max(0.0, self._end[1] - began_s - seconds)
            lost_s = max(0.0, since_s - max(0, last - steps - since_step + 1) * self._healthy_s)
            self._news = None
        return Look(
            step=last,
            steps=steps,
            seconds=seconds,
            healthy_s=self._healthy_s,
            condition=condition,
            since_s=since_s,
            lost_s=lost_s,
            since_step=since_step,
            is_unclear=self._is_unclear(lookout),
        )

    def _is_unclear(self, lookout: Lookout) -> bool:
        """Say whether nobody knows yet why steps are as long as they are."""
        is_unnamed = lookout.trouble is not None and not lookout.trouble.is_named
        return is_unnamed or self._speeds.weather > _BAD_WEATHER

    @property
    def _now_s(self) -> float:
        return self._end[1] if self._end is not None else 0.0

    def _decide(self, mitigator: Mitigator, decision: Decision) -> None:
        self._number += 1
        incident = mitigator.incident
        moves = moves_between(decision.before, decision.arrangement, mitigator.model.shape.places)
        event = Decided(
            number=self._number,
            level=decision.level,
            since_step=incident.since_step if incident is not None else 0,
            speeds=dict(decision.arrangement.reckoned),
            moves=moves,
            without=list(decision.arrangement.without),
            gain=decision.gain,
            healthy_s=self._healthy_s or 0.0,
            saved_s=decision.saved_s,
            lost_s=decision.lost_s,
            price_s=decision.price_s,
            outlook_s=decision.outlook_s,
            is_dry=decision.is_dry,
            is_rollback=decision.is_rollback,
            is_asked=decision.is_asked,
        )
        self._tell(event)
        self._say.line(tell_decision(event))
        if decision.is_dry:
            return
        self._decision, self._wished_s, self._cycle = decision, 0.0, self._seen_cycle
        wish = Arranged(
            number=self._number,
            speeds=event.speeds,
            moves=moves,
            without=event.without,
            holders=list(decision.arrangement.holders),
        )
        write_wish(self._rings, wish)

    def _tell_verdict(self, verdict: Verdict) -> None:
        event = Verified(
            number=self._number,
            level=verdict.level,
            promised=round(verdict.promised, 4),
            gained=round(verdict.gained, 4),
            healthy_s=self._healthy_s or 0.0,
            is_enough=verdict.is_enough,
        )
        self._tell(event)
        self._say.line(tell_verified(event))

    def _is_granted(self) -> bool:
        granted, decision = self._granted, self._decision
        if granted is None or decision is None or decision.deed == "restart":
            return False  # What a restart has cost is seen when the job has started again.
        return granted.wish == self._number

    def _is_begun(self, lookout: Lookout) -> bool:
        """Say whether a step was made in the new way: the pause before the first one belongs to it."""
        is_new_plan = self._granted is not None and self._granted.is_shared_by_stage
        return lookout.cycle != self._cycle or not is_new_plan

    def _done(self, mitigator: Mitigator, pause_s: float) -> None:
        assert self._decision is not None
        assert self._granted is not None
        mitigator.done(pause_s)
        event = Applied(
            number=self._number,
            level=self._decision.level,
            version=self._granted.version,
            pause_s=round(pause_s, 3),
        )
        self._decision = None
        self._tell_applied(event)

    def _tell_applied(self, event: Applied) -> None:
        self._tell(event)
        self._say.line(tell_applied(event))

    def _drop_late(self, now_s: float) -> None:
        """Give up on a wish that nobody grants: they have met for another reason, or are done."""
        if self._decision is None or self._mitigator is None:
            return
        self._wished_s = self._wished_s or now_s
        if now_s - self._wished_s < _PATIENCE_S:
            return
        event = Dropped(
            number=self._number,
            level=self._decision.level,
            reason=f"the workers did not meet within {_PATIENCE_S:g} s",
        )
        self._decision = None
        self._mitigator.refused()
        self._tell(event)
        self._say.line(tell_dropped(event))

    def _tell_bill(self, mitigator: Mitigator) -> None:
        incident = mitigator.closed
        assert incident is not None
        self._speeds.forget()
        event = IncidentClosed(
            since_step=incident.since_step,
            lasted_s=round(incident.age_s, 3),
            lost_s=round(incident.lost_s, 3),
            paid_s=round(incident.paid_s, 3),
        )
        self._tell(event)
        self._say.line(tell_closed(event))
