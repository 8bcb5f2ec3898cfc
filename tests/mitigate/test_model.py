"""How slow a job is under an arrangement, and which exchange of places helps it."""

from __future__ import annotations

import pytest

from holdfast.mitigate.condition import Arrangement, Condition, SlowLink
from holdfast.mitigate.model import Model, Replicas, Shape, Stages, best_exchange

FLAT = Shape(dp=4, microbatches=8)
GRID = Shape(dp=2, pp=4, microbatches=8, data_share=0.1, stage_share=0.02)
SLOW = Condition(speeds=((1, 0.5),))


@pytest.mark.parametrize("model", [Replicas(FLAT), Replicas(GRID), Stages(GRID)])
def test_healthy_job_takes_its_time(model: Model) -> None:
    """Nothing wrong, nothing changed: exactly a healthy step."""
    assert model.slowdown(Condition(), Arrangement()) == pytest.approx(1.0)


def test_whole_replicas_wait_for_the_slowest() -> None:
    """Half as fast is twice as long, until the work is shared out: 10, 4, 9 and 9 micro-batches."""
    model = Replicas(FLAT)
    assert model.slowdown(SLOW, Arrangement()) == pytest.approx(2.0)
    assert model.slowdown(SLOW, Arrangement(reckoned=SLOW.speeds)) == pytest.approx(10 / 8)


def test_stages_share_their_micro_batches() -> None:
    """Of 16 micro-batches the slow worker of stage 1 takes 5, its peer 11; the rest is as it was."""
    expected = 0.88 * 11 / 8 + 0.1 + 0.02
    found = Stages(GRID).slowdown(SLOW, Arrangement(reckoned=SLOW.speeds))
    assert found == pytest.approx(expected)


def test_skewed_plan_costs_a_healthy_job() -> None:
    """What was right for a slow worker is wrong once it has recovered."""
    assert Replicas(FLAT).slowdown(Condition(), Arrangement(reckoned=SLOW.speeds)) == pytest.approx(10 / 8)


def test_slow_link_hurts_where_gradients_travel() -> None:
    """Between two workers of a stage it costs its factor of that part; between stages of its own, less."""
    model = Replicas(GRID)
    condition = Condition(links=(SlowLink(1, 5, 3.0),))
    assert model.slowdown(condition, Arrangement()) == pytest.approx(1.2)
    moved = best_exchange(model, condition, Arrangement())
    assert model.slowdown(condition, moved) == pytest.approx(1.0)
    # Who was at the link's end has changed stages, with one other.
    assert sorted(moved.holders) == list(range(8))
    assert sum(rank != place for place, rank in enumerate(moved.holders)) == 2


def test_machines_move_as_a_whole() -> None:
    """Two machines of a stage with a slow link between them: all ranks of one change places."""
    shape = Shape(dp=4, pp=2, microbatches=8, data_share=0.2, nodes=(0, 2, 0, 2, 1, 3, 1, 3))
    condition = Condition(links=(SlowLink(0, 4, 5.0),))
    moved = best_exchange(Replicas(shape), condition, Arrangement())
    assert Replicas(shape).slowdown(condition, moved) == pytest.approx(1.0)
    changed = {rank for place, rank in enumerate(moved.holders) if rank != place}
    assert {shape.node(rank) for rank in changed} in ({0, 2}, {0, 3}, {1, 2}, {1, 3})
    assert len(changed) == 4


def test_stragglers_are_gathered_in_one_pipeline() -> None:
    """Whole replicas are as slow as their slowest worker: two slow ones belong into the same."""
    shape = Shape(dp=4, pp=2, microbatches=16)
    condition = Condition(speeds=((0, 0.5), (3, 0.5)))
    moved = best_exchange(Replicas(shape), condition, Arrangement(reckoned=condition.speeds))
    places = [place for place in range(8) if moved.holder(place) in (0, 3)]
    assert places[0] // 2 == places[1] // 2


def test_stragglers_are_spread_over_stages_that_share() -> None:
    """Where a stage shares its work, two slow workers of one stage are better off at two."""
    shape = Shape(dp=4, pp=4, microbatches=8)
    condition = Condition(speeds=((1, 0.5), (5, 0.5)))
    moved = best_exchange(Stages(shape), condition, Arrangement(reckoned=condition.speeds))
    stages = {place % 4 for place in range(16) if moved.holder(place) in (1, 5)}
    assert len(stages) == 2


class _Counting(Replicas):
    """Counts how often it is asked."""

    asked = 0

    def _slowdown(self, condition: Condition, arrangement: Arrangement) -> float:
        type(self).asked += 1
        return super()._slowdown(condition, arrangement)


def test_places_of_one_stage_are_alike() -> None:
    """Nobody looks for exchanges there: ten thousand ranks would take minutes, in the guard's only loop."""
    model = _Counting(Shape(dp=10_000, microbatches=1, data_share=0.1))
    condition = Condition(speeds=((7, 0.5),), links=(SlowLink(3, 4, 5.0),))
    assert best_exchange(model, condition, Arrangement()) == Arrangement()
    assert model.asked == 1


def test_without_its_last_worker_a_stage_is_not_possible() -> None:
    """Ranks 1 and 5 are all that stage 1 has; a spare can take one place."""
    gone = Arrangement(without=(1, 5))
    assert not Stages(GRID).is_possible(gone)
    assert Stages(GRID, spares=1).is_possible(gone)
    assert Stages(GRID).slowdown(Condition(), gone) == float("inf")


def test_a_spare_makes_a_job_whole() -> None:
    """Without a rank that a spare replaces the job is as fast as it was; without a spare, a replica fewer."""
    gone = Arrangement(without=(2,))
    assert Replicas(FLAT, spares=1).slowdown(Condition(speeds=((2, 0.5),)), gone) == pytest.approx(1.0)
    assert Replicas(FLAT).slowdown(Condition(), gone) == pytest.approx(11 / 8)
