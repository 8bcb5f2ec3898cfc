"""Who else decides: nobody, somebody hasty, and FALCON, as it was published and as it was coded."""

from __future__ import annotations

from holdfast.mitigate.condition import Arrangement, Condition
from holdfast.mitigate.ledger import Level
from holdfast.mitigate.look import Decision, Look
from holdfast.mitigate.model import Model
from holdfast.mitigate.options import Option, Ways
from holdfast.mitigate.prices import Deed

_GIVES_UP_S = 120.0
"""After so long FALCON's code does nothing more about an event."""
_EXCHANGE_S = 60.0
"""What its code takes an exchange to cost, whatever the job."""
_HALF_PICK_UP = 5
"""Half of the ten iterations after which its code looks for a new distribution."""


class Never:
    """Waits for better times."""

    def __init__(self, model: Model, prices: dict[Deed, float]) -> None:
        self._options = Ways(model)
        self._prices = prices
        self._arrangement = Arrangement()
        self._pending: Decision | None = None
        self._condition = Condition()
        self._age_s = self._lost_s = 0.0
        """Of the event: since it was known, and what it has cost since its onset."""
        self._taken: list[Level] = []

    def see(self, look: Look) -> Decision | None:
        """Count, and decide."""
        if look.condition.culprits != self._condition.culprits:
            self._age_s, self._lost_s, self._taken = 0.0, look.lost_s, []
        self._condition = look.condition
        self._age_s += look.seconds
        self._lost_s += look.seconds - look.steps * look.healthy_s
        self._pending = self._decide(look)
        return self._pending

    def done(self, pause_s: float) -> None:
        """Take note of what was done."""
        assert self._pending is not None
        self._arrangement = self._pending.arrangement
        self._taken.append(self._pending.level)
        self._lost_s += pause_s

    def _decide(self, look: Look) -> Decision | None:
        return None

    def _ways(self, condition: Condition) -> dict[Level, Option]:
        return {way.level: way for way in self._options.of(condition, self._arrangement)}

    def _go_back(self) -> Decision | None:
        """Return how to arrange things as they were, if they are not."""
        original = Arrangement(without=self._arrangement.without)
        if self._arrangement == original:
            return None
        deed: Deed = "exchange" if self._arrangement.holders else "replan"
        return self._decision(Option(level="undo", deed=deed, arrangement=original, gain=0.0))

    def _decision(self, way: Option) -> Decision:
        return Decision(
            level=way.level,
            deed=way.deed,
            arrangement=way.arrangement,
            before=self._arrangement,
            gain=way.gain,
            saved_s=0.0,
            lost_s=self._lost_s,
            price_s=self._prices[way.deed],
            outlook_s=0.0,
        )


class AtOnce(Never):
    """Does what helps most as soon as anything is known, short of a restart; goes back as soon."""

    def _decide(self, look: Look) -> Decision | None:
        if look.condition.is_healthy:
            return self._go_back()
        ways = [way for way in self._ways(look.condition).values() if way.level in ("S2", "S3")]
        return self._decision(max(ways, key=lambda way: way.gain)) if ways else None


class FalconPublished(Never):
    """Goes up a level whenever what an event has cost reaches the overhead of the next."""

    def _decide(self, look: Look) -> Decision | None:
        if look.condition.is_healthy:
            return self._go_back()
        candidates: tuple[Level, ...] = ("S2", "S3", "S4") if look.condition.speeds else ("S3", "S4")
        ways = self._ways(look.condition)
        for level in candidates:
            way = ways.get(level)
            if level in self._taken or way is None:
                continue
            return self._decision(way) if self._lost_s >= self._prices[way.deed] else None
        return None


class FalconCoded(Never):
    """Compares the time since an event was detected with constants, and acts once."""

    def _decide(self, look: Look) -> Decision | None:
        if look.condition.is_healthy:
            return self._go_back()
        if self._taken or self._age_s > _GIVES_UP_S:
            return None
        level: Level = "S2" if look.condition.speeds else "S3"
        way = self._ways(look.condition).get(level)
        excess_s = look.seconds / look.steps - look.healthy_s
        cost_s = _HALF_PICK_UP * excess_s if level == "S2" else _EXCHANGE_S
        return self._decision(way) if way is not None and self._age_s >= cost_s else None
