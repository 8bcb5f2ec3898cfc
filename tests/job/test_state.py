"""A worker's state follows the commit protocol, and ends where a plain loop ends, in every branch of it."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from holdfast.commit import CALM_STEPS, Agreement, Standing, Tally, Verdict
from holdfast.job.state import State
from holdfast.job.sums import FloatSum, Reduced

PLAIN = Verdict()
CLIPPED = Verdict(scale=0.5)
SKIPPED = Verdict(scale=0.0)
VOID = Verdict(is_void=True)


def gradients(step: int) -> list[Tensor | None]:
    """Return the gradient of a step."""
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(3, 2, generator=generator), torch.randn(4, generator=generator)]


class Twin:
    """A state, and the same model trained by a plain loop."""

    def __init__(self) -> None:
        self.mine, optimizer, schedule = self._make()
        self.theirs, self.optimizer, self.schedule = self._make()
        self.state = State(self.mine, optimizer, schedule, FloatSum(self.mine), max_norm=1.0)

    def _make(self) -> tuple[list[nn.Parameter], Any, Any]:
        parameters = [nn.Parameter(torch.full(shape, 0.5)) for shape in ((3, 2), (4,))]
        optimizer = torch.optim.AdamW(parameters, lr=0.1)
        return parameters, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def plain(self, step: int, scale: float = 1.0) -> None:
        """Let the plain loop make a step."""
        for parameter, gradient in zip(self.theirs, gradients(step), strict=True):
            assert gradient is not None
            parameter.grad = gradient * scale
        if scale:
            self.optimizer.step()
        self.schedule.step()

    def prepare(self, step: int) -> None:
        """Let the state have the gradient of a step."""
        self.state.prepare(Reduced(gradients(step)), tally(0.1))

    def check(self, version: int) -> None:
        """Fail unless both are at the same place."""
        assert self.state.version == version
        assert all(map(torch.equal, self.mine, self.theirs))
        assert self.state.optimizer.param_groups[0]["lr"] == self.optimizer.param_groups[0]["lr"]
        assert self.state.scheduler.state_dict() == self.schedule.state_dict()  # type: ignore[union-attr]


def tally(square: float, *, overflowed: bool = False) -> Tally:
    """Return what the only stage says of a step."""
    return Tally(squares={0: square}, overflows={0: overflowed}, losses=[1.0])


@pytest.fixture
def twin() -> Twin:
    """A state at version 1, after one plain step."""
    twin = Twin()
    twin.prepare(0)
    twin.state.apply(PLAIN)
    twin.plain(0)
    twin.check(1)
    return twin


@pytest.mark.parametrize(("verdict", "scale"), [(PLAIN, 1.0), (CLIPPED, 0.5), (SKIPPED, 0.0)])
def test_verdict_is_applied(twin: Twin, verdict: Verdict, scale: float) -> None:
    """A synchronous update is the plain loop's with the gradient scaled; skipped, only the rate goes on."""
    twin.prepare(1)
    twin.state.apply(verdict)
    twin.plain(1, scale)
    twin.check(2)
    assert twin.state.standing == Standing(version=2, tallies=twin.state.tallies)


@pytest.mark.parametrize(("verdict", "scale"), [(PLAIN, 1.0), (CLIPPED, 0.5), (SKIPPED, 0.0)])
def test_update_ahead_is_corrected_where_the_verdict_is_another(
    twin: Twin, verdict: Verdict, scale: float
) -> None:
    """What was applied ahead stands only if the verdict is plain; else it is made as the verdict says."""
    twin.prepare(1)
    twin.state.go_ahead(PLAIN)
    assert twin.state.standing.reachable == {1, 2}
    assert twin.state.confirm(verdict) == verdict.is_plain
    twin.plain(1, scale)
    twin.check(2)
    assert twin.state.calm_steps == (CALM_STEPS + 2 if verdict.is_plain else 0)


def test_update_ahead_is_taken_back_where_the_step_is_void(twin: Twin) -> None:
    """A void step leaves the state as it was, and nothing that was said of it."""
    twin.prepare(1)
    twin.state.go_ahead(PLAIN)
    assert not twin.state.confirm(VOID)
    twin.check(1)
    assert 1 not in twin.state.tallies
    assert twin.state.standing.reachable == {1}


@pytest.mark.parametrize(("verdict", "scale"), [(CLIPPED, 0.5), (SKIPPED, 0.0), (VOID, None)])
def test_held_update_waits_for_its_verdict(twin: Twin, verdict: Verdict, scale: float | None) -> None:
    """Where the own stage knows better, nothing is applied ahead, though the next step is computed."""
    twin.prepare(1)
    twin.state.go_ahead(verdict)
    assert (twin.state.version, twin.state.position) == (1, 2)
    twin.check(1)
    assert not twin.state.confirm(verdict)
    if scale is not None:
        twin.plain(1, scale)
    twin.check(1 if scale is None else 2)
    assert twin.state.position == twin.state.version


@pytest.mark.parametrize("is_ahead", [False, True])
@pytest.mark.parametrize(("square", "scale"), [(0.25, 1.0), (4.0, 1.0 / (2.0 + 1e-6)), (math.inf, 0.0)])
def test_agreement_on_the_next_version_is_adopted(
    twin: Twin, is_ahead: bool, square: float, scale: float
) -> None:
    """Prepared or ahead, a survivor comes to the version that was agreed, as the tally of all says."""
    twin.prepare(1)
    if is_ahead:
        twin.state.go_ahead(PLAIN)
    twin.state.adopt(Agreement(version=2, tally=tally(square)))
    twin.plain(1, scale)
    twin.check(2)
    assert twin.state.standing.reachable == {2}
    assert not twin.state.is_ahead


def test_held_update_is_adopted(twin: Twin) -> None:
    """A survivor that had held its update back applies it as agreed, and holds nothing any more."""
    twin.prepare(1)
    twin.state.go_ahead(CLIPPED)
    twin.state.adopt(Agreement(version=2, tally=tally(4.0)))
    twin.plain(1, 1.0 / (2.0 + 1e-6))
    twin.check(2)
    assert twin.state.position == 2


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_agreement_on_the_version_before_is_adopted(twin: Twin, is_confirmed: bool) -> None:
    """Who was ahead goes back by its shadow, its verdict known or not, and can make the step again."""
    twin.prepare(1)
    twin.state.go_ahead(PLAIN)
    if is_confirmed:
        twin.state.confirm(PLAIN)
    twin.state.adopt(Agreement(version=1))
    twin.check(1)
    assert twin.state.standing.reachable == {1}
    twin.prepare(1)
    twin.state.apply(PLAIN)
    twin.plain(1)
    twin.check(2)


def test_agreement_on_the_own_version_drops_what_was_prepared(twin: Twin) -> None:
    """A gradient that not all survivors can apply is computed again."""
    twin.prepare(1)
    twin.state.adopt(Agreement(version=1))
    twin.check(1)
    assert twin.state.standing.reachable == {1}


def test_first_step_of_all_can_be_taken_back() -> None:
    """Also where the optimizer had no state yet."""
    twin = Twin()
    twin.prepare(0)
    twin.state.go_ahead(PLAIN)
    twin.state.adopt(Agreement(version=0))
    twin.check(0)
    assert not twin.state.optimizer.state
    twin.prepare(0)
    twin.state.apply(PLAIN)
    twin.plain(0)
    twin.check(1)


def test_old_tallies_are_forgotten(twin: Twin) -> None:
    """A standing names the last two steps and not the whole run."""
    for step in range(1, 6):
        twin.prepare(step)
        twin.state.apply(PLAIN)
    assert sorted(twin.state.tallies) == [4, 5]


def test_overflow_is_never_prepared(twin: Twin) -> None:
    """A sum that means nothing cannot be applied, and nobody is told that it could."""
    reduced = Reduced(gradients(1))
    reduced.overflowed = True
    twin.state.prepare(reduced, tally(1.0, overflowed=True))
    assert twin.state.standing.reachable == {1}


def test_calm_follows_from_what_is_committed(twin: Twin) -> None:
    """After a clipped step nothing is applied ahead until enough steps were calm."""
    found = [twin.state.may_go_ahead]
    for step, verdict in enumerate([CLIPPED] + [PLAIN] * CALM_STEPS, start=1):
        twin.prepare(step)
        twin.state.apply(verdict)
        found.append(twin.state.may_go_ahead)
    assert found == [True] + [False] * CALM_STEPS + [True]


def test_saved_state_goes_on(twin: Twin) -> None:
    """What was saved and loaded into another state makes the same updates from there."""
    other = Twin()
    with torch.no_grad():
        for parameter, saved in zip(other.mine, twin.mine, strict=True):
            parameter.copy_(saved)
    other.state.load(copy.deepcopy(twin.state.save()), version=1)
    twin.plain(1)
    for each in (twin, other):
        each.prepare(1)
        each.state.apply(PLAIN)
    twin.check(2)
    assert all(map(torch.equal, other.mine, twin.mine))
