"""Times of another node on our clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from batches import make_batch
from holdfast.guard.arrivals import ClockOffset, rebase
from holdfast.telemetry import InCall


@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=50), st.floats(-1e6, 1e6))
def test_the_offset_is_that_of_the_report_that_was_held_up_least(delays: list[float], ahead_s: float) -> None:
    """It is wrong by no more than that report took."""
    clock = ClockOffset()
    for second, delay_s in enumerate(delays):
        offset_s = clock.update(second + delay_s, second + ahead_s)
    assert abs(offset_s - (min(delays) - ahead_s)) < 1e-6


def test_an_offset_of_ten_minutes_ago_is_forgotten() -> None:
    """Clocks drift apart: what was right then is not right now."""
    clock = ClockOffset()
    drift = 1e-3
    for second in range(2000):
        offset_s = clock.update(1000.0 + second * (1 + drift), float(second))
    assert 1000.0 + 1999 * drift - offset_s <= 600 * drift + 1e-9


def test_no_time_is_invented() -> None:
    """A rank that is in no call stays in none."""
    batch = make_batch(calls={1: InCall(rank=1, calls=3, since_s=None, channel=0)})
    rebase(batch, 5.0)
    assert batch.calls[1].since_s is None
    assert batch.sample.at_s == make_batch().sample.at_s + 5.0
