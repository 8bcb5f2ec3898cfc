"""ETTR: the closed form, the exact one, the best interval, and runs played out."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions import RSC_1, job
from holdfast.errors import InputError
from holdfast.reliability.ettr import (
    Conditions,
    best_interval_min,
    closed_form,
    daly_young_min,
    exact,
    is_closed_form_good,
)
from holdfast.reliability.montecarlo import play

# --- forms --------------------------------------------------------------------------------------

REFERENCE = [
    (job(1000, RSC_1, 60), 0.8420, 0.8514, -1.1),
    (job(1000, RSC_1, 30, write_min=5), 0.7798, 0.7739, 0.8),
    (job(1500, RSC_1, 38.4, write_min=5), 0.7398, 0.7355, 0.6),
    (job(1500, RSC_1, 7.02, write_min=1 / 6), 0.9205, 0.9213, -0.1),
    (job(2000, RSC_1, 60), 0.6840, 0.7203, -5.0),
    (job(2000, RSC_1, 5), 0.9323, 0.9340, -0.2),
    (job(256, RSC_1, 60, write_min=5, queue_min=10), 0.8756, 0.8731, 0.3),
]


@pytest.mark.parametrize(("conditions", "analytic", "played", "off"), REFERENCE)
def test_played_runs_have_their_reference_values(
    conditions: Conditions, analytic: float, played: float, off: float
) -> None:
    """Closed form, Monte Carlo over runs of 14 days, and how many percent lie between them."""
    found = play(conditions, np.random.default_rng(7), replicas=2000)
    assert closed_form(conditions) == pytest.approx(analytic, abs=6e-5)
    assert found.mean == pytest.approx(played, abs=2e-3)
    assert 100 * (closed_form(conditions) / found.mean - 1) == pytest.approx(off, abs=0.3)
    assert found.low < found.mean < found.high


EXACT = [
    *(row[0] for row in REFERENCE),
    job(12_500, RSC_1, 7),
    job(12_500, RSC_1, 60, queue_min=30),
    job(4000, RSC_1, 20, write_min=20, restart_min=30, queue_min=60),
]


@pytest.mark.parametrize("conditions", EXACT)
def test_exact_form_is_what_played_runs_come_to(conditions: Conditions) -> None:
    """Also where the closed form is far off; runs of 60 days, so that their first start hardly counts."""
    found = play(conditions, np.random.default_rng(3), run_days=60, replicas=300)
    assert found.mean == pytest.approx(exact(conditions), rel=2e-3, abs=4 * found.error)


def test_closed_form_is_too_low_where_checkpoints_are_rare() -> None:
    """At 2000 nodes and an hour by 5 %; at 100,000 GPUs it says that nothing gets done, which is wrong."""
    assert closed_form(job(2000, RSC_1, 60)) / exact(job(2000, RSC_1, 60)) == pytest.approx(0.95, abs=0.005)
    assert closed_form(job(12_500, RSC_1, 60)) == 0
    assert exact(job(12_500, RSC_1, 60)) == pytest.approx(0.0895, abs=1e-4)


times = st.floats(0.0, 120.0)


@given(st.floats(0.001, 0.1), st.floats(1.0, 300.0), times, st.floats(0.0, 0.1), times)
def test_closed_form_is_within_a_percent_where_it_is_called_good(
    loss: float, checkpoint_min: float, restart_min: float, write: float, queue_min: float
) -> None:
    """Failures take at most a tenth of the time, and writes at most a tenth of the interval."""
    lam = loss / (restart_min + checkpoint_min / 2) * (1 - 1e-9)
    conditions = job(
        1,
        lam * 1.44e6,
        checkpoint_min,
        restart_min=restart_min,
        write_min=write * checkpoint_min,
        queue_min=queue_min,
    )
    assert is_closed_form_good(conditions)
    assert closed_form(conditions) == pytest.approx(exact(conditions), rel=0.01)


def test_closed_form_is_too_high_where_writes_are_long() -> None:
    """What is lost with a failure during a write is not in it: 8 % with writes as long as the interval."""
    conditions = job(1, 5e-3 * 1.44e6, 30, write_min=30)
    assert conditions.loss == pytest.approx(0.1)
    assert not is_closed_form_good(conditions)
    assert closed_form(conditions) / exact(conditions) == pytest.approx(1.076, abs=1e-3)


def test_short_run_also_pays_for_its_first_start() -> None:
    """A day of work at 5 min of restart and an hour of queue; a very long run forgets both."""
    conditions = job(8, RSC_1, 60, queue_min=60)
    day = closed_form(conditions, productive_min=1440)
    assert day == pytest.approx(1440 / (1440 + 5 + 60), abs=5e-3)
    assert closed_form(conditions, productive_min=1e9) == pytest.approx(closed_form(conditions))
    assert closed_form(job(12_500, RSC_1, 60), productive_min=1440) == 0


@given(st.floats(1e-5, 0.05), st.floats(0.01, 60.0))
def test_no_interval_beats_the_best_one(failures_per_min: float, write_min: float) -> None:
    """Neither a shorter nor a longer one; Daly and Young's is near it where failures are rare."""
    conditions = job(1, failures_per_min * 1.44e6, 60, write_min=write_min)
    best = best_interval_min(conditions)
    first_order = daly_young_min(conditions)
    assert best is not None
    assert first_order is not None
    top, *others = (
        exact(msgspec.structs.replace(conditions, checkpoint_min=best * factor)) for factor in (1, 0.9, 1.1)
    )
    assert top >= max(others)
    assert best <= first_order
    if failures_per_min * write_min < 1e-3:
        assert best == pytest.approx(first_order, rel=0.02)


def test_free_writes_have_no_best_interval() -> None:
    """The shorter, the better."""
    assert daly_young_min(job(1, 1, 60)) is None
    assert best_interval_min(job(1, 1, 60)) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": 0},
        {"rate_per_1000_node_days": 0.0},
        {"checkpoint_min": 0.0},
        {"restart_min": -1.0},
        {"write_min": float("nan")},
        {"queue_min": float("inf")},
    ],
)
def test_conditions_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    """By their name."""
    with pytest.raises(InputError, match=next(iter(wrong))):
        msgspec.structs.replace(job(1, 1, 60), **wrong)


# --- played runs ---------------------------------------------------------------------------------


def test_same_seed_plays_the_same_runs() -> None:
    """And another seed other ones."""
    first, again, other = (play(job(1000, RSC_1, 60), np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_failures_during_a_restart_count() -> None:
    """A restart that takes as long as the time to failure is only survived by one attempt in e."""
    conditions = job(1000, RSC_1, 10, restart_min=1440 / 6.5)
    found = play(conditions, np.random.default_rng(0), replicas=300)
    lam = conditions.failures_per_min
    assert found.mean == pytest.approx(lam * 10 / np.expm1(lam * 10) / np.e, rel=0.02)


def test_run_that_gets_nowhere_is_played_at_once() -> None:
    """A checkpoint every day at a failure every few minutes: 0, and not an endless loop."""
    assert play(job(12_500, RSC_1, 1440), np.random.default_rng(0)).mean == 0
    assert play(job(12_500, 1e6, 1e6), np.random.default_rng(0)).mean == 0


def test_run_with_too_many_attempts_is_made_shorter() -> None:
    """It says so, and its mean is still that of long runs."""
    conditions = job(12_500, RSC_1, 60)
    found = play(conditions, np.random.default_rng(0))
    assert found.run_days < 14
    assert found.mean == pytest.approx(exact(conditions), rel=0.03)
