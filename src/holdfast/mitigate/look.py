"""What is seen of a job, and what is decided about it."""

from __future__ import annotations

import msgspec

from holdfast.mitigate.condition import Arrangement, Condition
from holdfast.mitigate.ledger import Level
from holdfast.mitigate.prices import Deed

Culprits = frozenset[tuple[int, ...]]


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Some steps of a job, and what is known to be wrong with it."""

    step: int
    """The last one."""
    steps: float
    """How many; one that was under way counts in part."""
    seconds: float
    """What they took, by the clock."""
    healthy_s: float
    """What one takes in a healthy job."""
    condition: Condition
    since_s: float = 0.0
    """How long ago it began, where that is news."""
    lost_s: float = 0.0
    """What it has cost until now, where that is news."""
    since_step: int | None = None
    """At which step it began; None: at this one."""
    is_unclear: bool = False
    """Whether nobody knows yet why steps are as long as they are."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, with the numbers that say why."""

    level: Level
    deed: Deed
    arrangement: Arrangement
    before: Arrangement
    gain: float
    """By how much steps should get shorter, in healthy steps."""
    saved_s: float
    """What it would have saved since the onset."""
    lost_s: float
    """What the incident has cost so far."""
    price_s: float
    outlook_s: float
    """How much longer the incident is expected to last."""
    is_dry: bool = False
    """It would be done, were it allowed."""
    is_rollback: bool = False
    """It takes back what did not help."""
    is_asked: bool = False
    """A person wants it."""
