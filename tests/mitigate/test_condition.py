"""What suspects amount to, and what is known of how long such things last and cost."""

from __future__ import annotations

import pytest

from holdfast.findings import Suspect
from holdfast.mitigate.condition import Arrangement, Condition, SlowLink, condition_of
from holdfast.mitigate.lasting import Lasting
from holdfast.mitigate.options import worst
from holdfast.mitigate.prices import Prices


def suspect(*ranks: int, **more: object) -> Suspect:
    """Return a suspect, twice as slow unless said otherwise."""
    return Suspect(**({"ranks": list(ranks), "slowdown": 2.0, "confidence": 0.9, "cause": "compute"} | more))  # type: ignore[arg-type]


def test_suspects_become_speeds_and_links() -> None:
    """Ranks by their speed, links by their factor, whoever is named twice by the worse of both."""
    found = condition_of(
        [
            suspect(3),
            suspect(3, slowdown=4.0, cause="cpu_contention"),
            suspect(5, 1, kind="link", link=(5, 1), cause="link", slowdown=3.0),
        ]
    )
    assert found == Condition(speeds=((3, 0.25),), links=(SlowLink(1, 5, 3.0),))


@pytest.mark.parametrize(
    "more",
    [
        {"slowdown": None},
        {"slowdown": 0.9},
        {"cause": "input_imbalance"},
        {"cause": "stage_imbalance"},
        {"cause": "hang"},
        {"confidence": 0.3},
    ],
)
def test_what_no_rank_is_to_blame_for_is_left_out(more: dict[str, object]) -> None:
    """Imbalance is the job's own; who hangs is not slow; a guess is not a finding."""
    assert condition_of([suspect(0, **more)], least=0.5).is_healthy


def test_ranks_that_left_are_nobody_s_trouble() -> None:
    """What of a condition is left without them."""
    condition = Condition(speeds=((1, 0.5), (2, 0.5)), links=(SlowLink(2, 3, 2.0), SlowLink(4, 5, 2.0)))
    assert condition.without((2,)) == Condition(speeds=((1, 0.5),), links=(SlowLink(4, 5, 2.0),))


def test_swapping_twice_is_as_before() -> None:
    """An undone exchange leaves no trace."""
    once = Arrangement().swapped(1, 6, 8)
    assert once.holder(1) == 6
    assert once.swapped(1, 6, 8) == Arrangement()


def test_fewest_ends_of_slow_links_go() -> None:
    """A rank at the end of two slow links explains both."""
    condition = Condition(links=(SlowLink(0, 3, 2.0), SlowLink(3, 7, 2.0)))
    assert worst(condition) == [3]


def test_outlook_follows_its_age_until_durations_are_known() -> None:
    """Without any knowledge, four times as long again; with it, what those that were alike had left."""
    lasting = Lasting()
    assert lasting.outlook(("rank",), 30.0) == 120.0
    for _ in range(100):
        lasting.note(("rank",), 600.0)
    assert lasting.outlook(("rank",), 30.0) == pytest.approx((2 * 30 + 100 * 570) / 100.5)
    assert lasting.outlook(("rank",), 700.0) == pytest.approx(2 * 700 / 100.5)  # Such things end by now.
    assert lasting.outlook(("rank",), 800.0) == 3200.0  # This one does not.
    assert lasting.outlook(("link",), 30.0) == 120.0


def test_durations_are_kept_in_bounded_memory() -> None:
    """Ten thousand incidents later."""
    lasting = Lasting()
    for number in range(10_000):
        lasting.note(("rank",), float(number))
    assert len(lasting._seen["rank",]) <= 200


def test_nothing_is_for_free() -> None:
    """Else what does not help would be tried again and again."""
    prices = Prices({"replan": 4.0})
    prices.note("replan", 0.0)
    assert prices.of("replan") == pytest.approx(0.05)


def test_prices_are_measured_as_soon_as_they_can_be() -> None:
    """A guess holds until something was done; a deed nobody knows how to do has none."""
    prices = Prices({"replan": 5.0})
    assert prices.of("replan") == 5.0
    for seconds in (0.3, 0.4, 9.0):
        prices.note("replan", seconds)
    assert prices.of("replan") == 0.4
    assert prices.of("restart") is None
