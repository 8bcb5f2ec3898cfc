"""The pace of a run over time."""

from __future__ import annotations

import pytest

from holdfast.errors import InputError
from holdfast.serve.store import PacePoint, Store
from holdfast.telemetry import Summary
from store.storecases import RUN, at, row, ship


def long_rows(seconds: int, every: int = 1) -> list[Summary]:
    """Return rows of a run whose step takes 1 s, 2 s in its second half."""
    return [row(s, {0: 1.0 if s < seconds / 2 else 2.0}, step=s) for s in range(0, seconds, every)]


def test_the_nodes_of_a_second_are_one_point(store: Store) -> None:
    """Also when they come one after the other."""
    store.take([ship([], [row(7.1, {0: 0.5, 1: 0.5}, step=4)])])
    store.take([ship([], [row(7.9, {2: 0.5, 3: 0.9}, node=1, step=5)], node=1)])
    store.take([ship([], [row(9, {0: 0.6}, step=6)])])
    assert store.pace(RUN.key) == [
        PacePoint(at=at(7), step=5, step_s=0.5, slowest_s=0.9, slowest_rank=3, ranks=4),
        PacePoint(at=at(9), step=6, step_s=0.6, slowest_s=0.6, slowest_rank=0, ranks=1),
    ]


@pytest.mark.parametrize("points", [1, 2, 7, 60, 600])
def test_there_are_never_more_points_than_wanted(store: Store, points: int) -> None:
    """Over the whole time, in stretches of one length; no second is lost."""
    for start in range(0, 2000, 500):
        store.take([ship([], [row(s, {s % 5: 1.0}, step=s) for s in range(start, start + 500)])])
    found = store.pace(RUN.key, points=points)
    assert points / 3 <= len(found) <= points
    assert found[-1].step == 1999
    assert found == sorted(found, key=lambda point: point.at)
    assert {point.ranks for point in found[1:-1]} <= {4, 5}


def test_a_day_is_read_from_coarse_buckets(store: Store) -> None:
    """And says the same as the seconds would."""
    store.take([ship([], long_rows(24 * 3600, every=60))])
    found = store.pace(RUN.key, points=100)
    assert 50 <= len(found) <= 100
    assert [point.step_s for point in found] == sorted(point.step_s for point in found)
    assert (found[0].step_s, found[-1].step_s) == (1.0, 2.0)


def test_since_cuts_what_was_before(store: Store) -> None:
    """And what is left is drawn finer."""
    store.take([ship([], long_rows(2000))])
    found = store.pace(RUN.key, points=100, since=at(1950))
    assert [point.step for point in found] == list(range(1950, 2000))
    assert store.pace(RUN.key, since=at(5000)) == []


def test_a_since_that_is_no_time_is_refused(store: Store) -> None:
    """In one line."""
    store.take([ship([], long_rows(2))])
    with pytest.raises(InputError, match="since is 'soon', expected a time in ISO 8601"):
        store.pace(RUN.key, since="soon")


def test_a_run_without_steps_has_no_pace(store: Store) -> None:
    """Neither has one that is not known."""
    store.take([ship([], [row(1, {})])])
    assert store.pace(RUN.key) == store.pace("nobody") == []
    assert store.ranks(RUN.key) == store.ranks("nobody") == []
    assert store.records("nobody") == []
