"""Histories of trouble with somebody who decides; a sample of what ``benchmarks/mitigate.py`` does."""

from __future__ import annotations

import pytest

from holdfast.mitigate.condition import Condition, SlowLink
from holdfast.mitigate.decide import Mitigator
from holdfast.mitigate.model import Shape
from holdfast.mitigate.prices import Prices
from holdfast.simulate.hindsight import clairvoyant_s
from holdfast.simulate.incidents import History, Trouble, Weather, draw_history
from holdfast.simulate.mitigated import Responder, play
from holdfast.simulate.responders import AtOnce, FalconCoded, FalconPublished, Never


def ours(history: History) -> Mitigator:
    """Return somebody who decides as we do, with known prices."""
    return Mitigator(history.model(), Prices(history.prices))


def test_weather_joins_what_overlaps() -> None:
    """A rank that two things slow down suffers from both; of two factors of a link the larger counts."""
    weather = Weather(
        [
            Trouble(start_s=10, end_s=30, speeds=((1, 0.5),)),
            Trouble(start_s=20, end_s=40, speeds=((1, 0.8),), links=(SlowLink(0, 1, 2.0),)),
        ]
    )
    assert weather.at(5.0).is_healthy
    assert weather.at(25.0) == Condition(speeds=((1, 0.4),), links=(SlowLink(0, 1, 2.0),))
    assert [seconds for seconds, _ in weather.spans(50.0)] == [10, 10, 10, 10, 10]


def test_clairvoyant_waits_or_acts_at_once() -> None:
    """What is short is waited out; what is long is acted upon when it begins, and undone when it ends."""

    def history(end_s: float) -> History:
        return History(
            shape=Shape(dp=4, microbatches=8),
            is_stages=False,
            healthy_s=1.0,
            prices={"replan": 4.0, "exchange": 10.0, "restart": 100.0},
            troubles=(Trouble(start_s=100, end_s=end_s, speeds=((1, 0.5),)),),
            horizon_s=10_000,
        )

    assert clairvoyant_s(history(110.0)) == pytest.approx(10 * 0.5)
    # Shared out a step takes 1.25 instead of 2; both changes cost 4.
    assert clairvoyant_s(history(1100.0)) == pytest.approx(4 + 996 * 0.2 + 4)


def test_who_knows_all_arranges_a_job_for_two_links_at_once() -> None:
    """Who knows only how long things last pays for the second exchange too, when its link gets slow."""
    history = draw_history(800, troubles=2)
    exchange_s = history.prices["exchange"]
    assert clairvoyant_s(history) == pytest.approx(exchange_s)
    assert clairvoyant_s(history, is_ready=False) == pytest.approx(2 * exchange_s)


@pytest.mark.parametrize("seed", range(25))
def test_of_one_incident_all_is_known_when_it_begins(seed: int) -> None:
    """There is nothing to be ready for."""
    history = draw_history(seed, troubles=1)
    assert clairvoyant_s(history, is_ready=False) == pytest.approx(clairvoyant_s(history))


@pytest.mark.parametrize("seed", [*range(25), 7133, 7155])  # Two deeds in a row, once.
def test_single_incidents_cost_at_most_twice(seed: int) -> None:
    """The bound, and a little for looks that come late."""
    history = draw_history(seed, troubles=1)
    cost_s = play(history, ours(history), look_s=0.02).lost_s
    assert cost_s <= 2.03 * clairvoyant_s(history) + 1e-6


@pytest.mark.parametrize("seed", range(15))
def test_nobody_does_better_than_who_knows(seed: int) -> None:
    """Whoever decides, the checkers hold, and the clairvoyant is not beaten by more than a look."""
    history = draw_history(seed, troubles=4)
    deciders: list[Responder] = [
        ours(history),
        *(kind(history.model(), history.prices) for kind in (Never, AtOnce, FalconPublished, FalconCoded)),
    ]
    best_s = clairvoyant_s(history)
    for decider in deciders:
        assert play(history, decider, look_s=1.0).lost_s >= best_s * 0.99 - 1e-6


def test_ledger_agrees_with_the_clock_of_the_world() -> None:
    """With everything known at once, all that was lost is in the incidents."""
    history = draw_history(3, troubles=3)
    decider = ours(history)
    lost_s: list[float] = []
    close = decider._close

    def closing(incident: object) -> None:
        lost_s.append(incident.lost_s)  # type: ignore[attr-defined]
        close(incident)  # type: ignore[arg-type]

    decider._close = closing  # type: ignore[method-assign]
    outcome = play(history, decider)
    still_s = decider.incident.lost_s if decider.incident is not None else 0.0
    assert sum(lost_s) + still_s == pytest.approx(outcome.lost_s)


def test_what_passes_before_it_is_known_is_told_apart() -> None:
    """Ten seconds of a job twice as slow, before anybody knows."""
    history = History(
        shape=Shape(dp=4, microbatches=8),
        is_stages=False,
        healthy_s=1.0,
        prices={"replan": 4.0, "exchange": 10.0, "restart": 100.0},
        troubles=(Trouble(start_s=100, end_s=400, speeds=((1, 0.5),)),),
        horizon_s=1000,
    )
    outcome = play(history, Never(history.model(), history.prices), delay_s=10.0)
    assert outcome.unnoticed_s == pytest.approx(5.0)
    assert outcome.lost_s == pytest.approx(150.0)
