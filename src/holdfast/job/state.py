"""What a worker has committed to: its version, the update it could apply, the one it could take back.

Follows ``holdfast.commit``: *prepared* means that every live peer of the stage holds the gradient of the next
step; an update may be applied *ahead* of its verdict if the state before it is kept as a shadow.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from torch import nn

from holdfast.commit import CALM_STEPS, Agreement, Standing, Tally, Verdict, judge, merge
from holdfast.job.shadow import Shadow
from holdfast.job.sums import ExactSum, GradientSum, Reduced

_KEPT_TALLIES = 2


class State:
    """Parameters and optimizer of one stage, and how far they are."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        optimizer: Any,
        scheduler: Any | None,
        sums: GradientSum,
        *,
        max_norm: float | None,
    ) -> None:
        self.version = 0
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.calm_steps = CALM_STEPS
        """Steps in a row whose norm was within its limit."""
        self.exponents: list[int] | None = None
        """Grids of the exact sum for the next step; committed with the update before it."""
        self.tallies: dict[int, Tally] = {}
        self.is_ahead = False
        """The last update was applied before its verdict."""
        self.is_held = False
        """The prepared update waits for its verdict, while the step after it is already computed."""
        self.on_final: Callable[[Reduced, float], None] = lambda reduced, scale: None
        """Called when an update is final, with its gradient and what that was scaled by."""
        self._parameters = parameters
        self._sums = sums
        self._max_norm = max_norm
        self._shadow = Shadow(parameters, optimizer, scheduler)
        self._shadow_exponents: list[int] | None = None
        self._has_shadow = False
        self._reduced: Reduced | None = None
        self._is_prepared = False

    @property
    def standing(self) -> Standing:
        """How far this worker is, for those who agree on where to go on."""
        return Standing(
            version=self.version,
            is_prepared=self._is_prepared,
            has_shadow=self._has_shadow,
            tallies=dict(self.tallies),
        )

    @property
    def position(self) -> int:
        """The step to compute next."""
        return self.version + self.is_held

    @property
    def may_go_ahead(self) -> bool:
        """Whether the next step may be computed before the verdict on this one: a function of what is
        committed, so all workers agree on it."""
        is_first_exact = isinstance(self._sums, ExactSum) and self.exponents is None
        return self.calm_steps >= CALM_STEPS and not is_first_exact

    def judge(self, tally: Tally) -> Verdict:
        """Say what becomes of an update."""
        return judge(tally, max_norm=self._max_norm)

    def prepare(self, reduced: Reduced, tally: Tally) -> None:
        """Keep the gradient of the next step, which all live peers of the stage hold now."""
        self._reduced = reduced
        self._is_prepared = not reduced.overflowed
        self.note(self.version, tally)

    def note(self, step: int, tally: Tally) -> None:
        """Remember what is known of a step."""
        self.tallies[step] = merge([self.tallies.get(step, Tally()), tally])
        for old in [each for each in self.tallies if each <= step - _KEPT_TALLIES]:
            del self.tallies[old]

    def go_ahead(self, verdict: Verdict) -> None:
        """Apply the prepared update before the verdict of all, keeping what was before it.

        Where the own stage's verdict is bad already, nothing is applied; the next step is computed all the
        same, since the other stages do so, and thrown away.
        """
        if not verdict.is_plain:
            self.is_held = True
            return
        self._shadow.take()
        self._shadow_exponents = self.exponents
        self._has_shadow = True
        self._apply(1.0)
        self.is_ahead = True

    def apply(self, verdict: Verdict) -> None:
        """Apply the prepared update as the verdict says; a void one leaves nothing but its magnitudes."""
        self._has_shadow = self.is_held = False
        if verdict.is_void:
            self._void(self.version)
            return
        self._apply(verdict.scale)
        self._finish(verdict)

    def confirm(self, verdict: Verdict) -> bool:
        """Take the verdict on an update that was applied ahead, or held; return whether it stood."""
        if self.is_held:
            self.apply(verdict)
            return False
        self.is_ahead = False
        if verdict.is_plain:
            self._finish(verdict)
            return True
        self._go_back()
        if verdict.is_void:
            self._void(self.version)
        else:
            self._apply(verdict.scale)
            self._finish(verdict)
        return False

    def replay(self, reduced: Reduced, scale: float) -> None:
        """Apply an update that others have applied before, as they did."""
        self._reduced = reduced
        self._apply(scale)
        self._finish(Verdict(scale=scale))

    def retry_exponents(self) -> list[int] | None:
        """Return the grids with which a void step fits, from the magnitudes that it had."""
        if self._reduced is None or not isinstance(self._sums, ExactSum):
            return None
        return self._sums.exponents_for(self._reduced)

    def adopt(self, agreement: Agreement) -> None:
        """Go to the version that all survivors can reach."""
        step = agreement.version - 1
        if agreement.tally is not None:
            self.note(step, agreement.tally)
        if agreement.version == self.version + 1:
            assert self._is_prepared
            assert agreement.tally is not None
            self.is_ahead = False
            self.apply(self.judge(agreement.tally))
        elif agreement.version == self.version - 1:
            self._go_back()
        elif self.is_ahead:
            assert agreement.tally is not None
            self.confirm(self.judge(agreement.tally))
        assert self.version == agreement.version
        self.is_ahead = self.is_held = False
        self._is_prepared = self._has_shadow = False

    def save(self) -> dict[str, Any]:
        """Return everything but the module that a later run goes on from."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler is not None else None,
            "exponents": self.exponents,
            "calm_steps": self.calm_steps,
        }

    def load(self, content: dict[str, Any], version: int) -> None:
        """Go on from what ``save`` returned."""
        self.optimizer.load_state_dict(content["optimizer"])
        if self.scheduler is not None and content["scheduler"] is not None:
            self.scheduler.load_state_dict(content["scheduler"])
        self.exponents = content["exponents"]
        self.calm_steps = content["calm_steps"]
        self.version = version

    def _apply(self, scale: float) -> None:
        assert self._reduced is not None
        if scale != 0.0:
            self._step_optimizer(self._reduced, scale)
            if isinstance(self._sums, ExactSum):
                self.exponents = self._sums.exponents_after(self._reduced.magnitudes)
        if self.scheduler is not None:
            self._step_scheduler(is_skipped=scale == 0.0)
        self.version += 1
        self._is_prepared = False

    def _step_scheduler(self, *, is_skipped: bool) -> None:
        assert self.scheduler is not None
        with warnings.catch_warnings() if is_skipped else nullcontext():
            if is_skipped:  # torch warns of a rate that changes before the first update.
                warnings.simplefilter("ignore", UserWarning)
            self.scheduler.step()

    def _step_optimizer(self, reduced: Reduced, scale: float) -> None:
        for parameter, gradient in zip(self._parameters, reduced.gradients, strict=True):
            parameter.grad = gradient if scale == 1.0 or gradient is None else gradient * scale
        self.optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None

    def _void(self, step: int) -> None:
        self._is_prepared = False
        # What was said of it holds no longer: the step will be computed again.
        self.tallies.pop(step, None)

    def _go_back(self) -> None:
        assert self._has_shadow
        self._shadow.restore()
        self.exponents = self._shadow_exponents
        self.version -= 1
        self._has_shadow = False
        self.is_ahead = False

    def _finish(self, verdict: Verdict) -> None:
        """Note that the last update is final."""
        self.calm_steps = self.calm_steps + 1 if verdict.is_plain else 0
        assert self._reduced is not None
        self.on_final(self._reduced, verdict.scale)
