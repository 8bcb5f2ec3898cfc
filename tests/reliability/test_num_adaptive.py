"""Training through failures: between a job that restarts and one that never fails, by formula and played."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from holdfast.errors import InputError
from holdfast.reliability.adaptive import Adaptation, lay_out, train_through
from holdfast.reliability.ettr import Conditions, exact
from holdfast.reliability.throughplay import play_through

LARGE = Conditions(nodes=12_500, rate_per_1000_node_days=6.5, checkpoint_min=60, write_min=1)
MIDDLE = Conditions(nodes=1000, rate_per_1000_node_days=6.5, checkpoint_min=30, write_min=2, queue_min=10)
SMALL = Conditions(nodes=16, rate_per_1000_node_days=50, checkpoint_min=60)


@pytest.mark.parametrize("conditions", [LARGE, MIDDLE, SMALL])
def test_job_that_tolerates_nothing_is_one_that_restarts(conditions: Conditions) -> None:
    """Its ETTR is the exact one of such a job, by formula and played."""
    nothing = Adaptation(tolerated=0)
    assert train_through(conditions, nothing).ettr == pytest.approx(exact(conditions), rel=1e-9)
    played = play_through(conditions, nothing, np.random.default_rng(1))
    assert played.mean == pytest.approx(exact(conditions), rel=5e-3, abs=4 * played.error)


CASES = [
    (LARGE, Adaptation()),
    (LARGE, Adaptation(stages=64, tolerated=3)),
    (LARGE, Adaptation(stages=256, tolerated=2, repair_hours=48)),
    (MIDDLE, Adaptation(slope=8, repair_hours=72)),
    (MIDDLE, Adaptation(stages=250, tolerated=1)),
    (MIDDLE, Adaptation(pause_s=30, repair_hours=1)),
    (MIDDLE, Adaptation(pause_s=30, repair_hours=0)),
    (SMALL, Adaptation(stages=4, repair_hours=100)),
    (SMALL, Adaptation(stages=8, repair_hours=100)),
]


@pytest.mark.parametrize(("conditions", "adaptation"), CASES)
def test_formula_is_what_played_runs_come_to(conditions: Conditions, adaptation: Adaptation) -> None:
    """Within 1 %, whether restarts are next to never or several a day."""
    formula = train_through(conditions, adaptation)
    played = play_through(conditions, adaptation, np.random.default_rng(5))
    assert formula.ettr == pytest.approx(played.mean, rel=0.01, abs=4 * played.error)
    assert played.low < played.mean < played.high


def test_more_of_everything_bad_is_worse() -> None:
    """Slope, pause and repair each cost; more tolerance does not."""
    base = train_through(MIDDLE, Adaptation(stages=100)).ettr
    for worse in ({"slope": 4.0}, {"pause_s": 60.0}, {"repair_hours": 96.0}, {"tolerated": 1}):
        changed = msgspec.structs.replace(Adaptation(stages=100), **worse)
        assert train_through(MIDDLE, changed).ettr < base, worse


def test_share_of_missing_nodes_is_that_of_failures_and_repairs() -> None:
    """6.5 per 1000 node-days and a day of repair: 0.65 % of the nodes are gone, and each costs two pauses."""
    found = train_through(LARGE, Adaptation())
    assert found.down_share == pytest.approx(0.0065 / 1.0065)
    assert found.pauses_per_day == pytest.approx(2 * 81.25 / 1.0065)
    assert found.restarts_per_day < 1e-6


def test_layout_fits_small_jobs() -> None:
    """No more stages than nodes, half of a stage tolerated, and never all of it."""
    words = [
        lay_out(msgspec.structs.replace(SMALL, nodes=nodes), Adaptation(stages=8, tolerated=tolerated))
        for nodes, tolerated in ((4, None), (16, None), (100, None), (16, 50))
    ]
    assert [(each.stages, each.tolerated) for each in words] == [(4, 0), (8, 1), (8, 6), (8, 1)]


def test_job_that_cannot_start_gets_nothing_done() -> None:
    """Every start is interrupted: 0, and not an endless loop."""
    hopeless = msgspec.structs.replace(LARGE, restart_min=1000.0)
    assert train_through(hopeless, Adaptation(tolerated=0)).ettr < 1e-20
    assert play_through(hopeless, Adaptation(tolerated=0), np.random.default_rng(0)).mean == 0


@pytest.mark.parametrize(
    "wrong", [{"pause_s": -1.0}, {"slope": float("nan")}, {"stages": 0}, {"tolerated": -1}]
)
def test_adaptations_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    """By their name."""
    with pytest.raises(InputError, match=next(iter(wrong))):
        msgspec.structs.replace(Adaptation(), **wrong)
