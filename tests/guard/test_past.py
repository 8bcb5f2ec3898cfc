"""What is kept of a node's last minutes."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from batches import make_batch
from holdfast.guard.past import DENSE_S, OLDEST_S, SPARSE_S, Past

NOW_S = 1000


def _past() -> Past:
    past = Past()
    for second in range(NOW_S + 1):
        past.add(make_batch(at_s=float(second)))
    return past


@given(st.integers(NOW_S - int(OLDEST_S), NOW_S), st.integers(2, 100))
def test_a_window_is_hit_as_exactly_as_its_age_asks_for(since_s: int, length_s: int) -> None:
    """To the second where it is recent, else to some seconds; both ends lie within it."""
    until_s = min(NOW_S, since_s + length_s)
    looks = _PAST.between(float(since_s), float(until_s))
    if looks is None:
        assert until_s - since_s <= 2 * SPARSE_S
        return
    first_s, last_s = (look.sample.at_s for look in looks)
    assert since_s <= first_s < last_s <= until_s
    for wanted_s, found_s in ((since_s, first_s), (until_s, last_s)):
        assert abs(found_s - wanted_s) <= (0 if wanted_s >= NOW_S - DENSE_S else SPARSE_S)


def test_a_look_comes_back_as_it_was() -> None:
    """Counters, links and times."""
    past = Past()
    batches = [make_batch(at_s=at_s) for at_s in (1.0, 2.0, 3.0)]
    for batch in batches:
        past.add(batch)
    looks = past.between(1.5, math.inf)
    assert looks is not None
    assert [(look.sample, look.links) for look in looks] == [(b.sample, b.links) for b in batches[1:]]


def test_one_look_is_no_window() -> None:
    """Rates are made of two."""
    past = Past()
    assert past.between(-math.inf, math.inf) is None
    past.add(make_batch())
    assert past.between(-math.inf, math.inf) is None


def test_what_is_older_than_some_minutes_is_forgotten() -> None:
    """Memory is bounded."""
    looks = _PAST.between(-math.inf, math.inf)
    assert looks is not None
    assert looks[0].sample.at_s >= NOW_S - OLDEST_S


_PAST = _past()
