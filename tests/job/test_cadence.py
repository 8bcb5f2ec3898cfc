"""When checkpoints are due: every so many steps, or as the failure rate says."""

from __future__ import annotations

import pytest

from holdfast.job.cadence import Cadence
from holdfast.reliability.ettr import Conditions, best_interval_min


def test_every_so_many_steps_it_is_the_next_multiple() -> None:
    """Whoever is asked, and from wherever the run has gone on."""
    cadence = Cadence(50)
    assert [cadence.due_after(version) for version in (0, 49, 50, 51)] == [50, 50, 100, 100]


def test_by_the_failure_rate_it_is_as_the_forecast_says() -> None:
    """Steps of 0.1 s, 0.2 s for a checkpoint, a failure in 2 h."""
    cadence = Cadence(None, mttf_s=7200.0)
    assert cadence.due_after(0) == 10  # The first one shows what it costs.
    for number in range(5):
        cadence.note_step(0.1 * number)
    cadence.note_cost(0.2)
    conditions = Conditions(nodes=1, rate_per_1000_node_days=12_000, checkpoint_min=1, write_min=0.2 / 60)
    best_min = best_interval_min(conditions)
    assert best_min is not None
    assert (cadence.due_after(100) - 100) * 0.1 == pytest.approx(60 * best_min, rel=0.01)


def test_checkpoints_are_never_closer_than_they_can_be_written() -> None:
    """A slow disk must not be asked for the next while it has the last."""
    cadence = Cadence(None, mttf_s=1.0)
    for number in range(5):
        cadence.note_step(0.1 * number)
    cadence.note_cost(1e-6)
    cadence.note_written(3.0)
    assert cadence.due_after(0) == 60
