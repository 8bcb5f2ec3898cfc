"""What an incident has cost, and what each way out of it would have saved since its onset."""

from __future__ import annotations

from typing import Literal

from holdfast.mitigate.condition import Condition

Level = Literal["undo", "S2", "S3", "S4"]
LEVELS: tuple[Level, ...] = ("undo", "S2", "S3", "S4")
"""S1 is to wait, and is not a deed. Each costs more than the one before, as a rule."""


class Incident:
    """A time during which a job is slow, or arranged around something that is gone.

    Everything is counted against the *healthy* step, which no action of ours changes; and nothing is
    forgotten when we act: what is left to lose afterwards comes on top.
    """

    def __init__(self, condition: Condition, *, step: int, lost_s: float, age_s: float) -> None:
        """Begin at the onset, which was some time before anybody knew of it."""
        self.since_step = step
        self.kinds = condition.kinds
        self.lost_s = lost_s
        """Against a healthy job, pauses included."""
        self.paid_s = 0.0
        """Of that, for what we did ourselves."""
        self.age_s = age_s
        self.trouble_s = age_s
        """How long something was wrong; an incident ends later, when all is as it was."""
        self.regime_s = age_s
        """How long it has been the same culprits."""
        self.saved_s: dict[Level, float] = dict.fromkeys(LEVELS, 0.0)
        """What each level would have saved since something was done last, had it been in force since then."""
        self.told: set[Level] = set()
        """Levels that would have been taken, but must not."""

    def pass_time(self, seconds: float, steps: float, healthy_s: float, *, is_trouble: bool) -> None:
        """Account for some steps."""
        self.lost_s += seconds - steps * healthy_s
        self.age_s += seconds
        self.regime_s += seconds
        if is_trouble:
            self.trouble_s = self.age_s

    def weigh(self, level: Level, saving_s: float) -> None:
        """Note what a level would have saved meanwhile; it may have been worse than what was done."""
        self.saved_s[level] = max(0.0, self.saved_s[level] + saving_s)

    def pay(self, pause_s: float) -> None:
        """Charge for what was done; whatever is done next has to prove itself by what it adds."""
        self.lost_s += pause_s
        self.paid_s += pause_s
        self.age_s += pause_s
        self.saved_s = dict.fromkeys(LEVELS, 0.0)
