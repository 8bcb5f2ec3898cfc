"""What may happen next: everybody's death and return, but not that of a stage's last worker."""

from __future__ import annotations

from holdfast.plan.ahead import likely
from holdfast.plan.problem import Problem, Worker, make_speeds


def test_every_death_that_leaves_something_to_plan_and_every_return_come_up_once() -> None:
    """Returns first; among deaths the slow."""
    speeds = make_speeds(2, 2, {Worker(0, 0): 0.0, Worker(1, 1): 0.5})
    problem = Problem(dp=2, pp=2, microbatches=4, speeds=speeds)
    found = [each.speeds for each in likely(problem)]
    assert found == [
        ((1.0, 1.0), (1.0, 0.5)),  # 0.0 is back.
        ((0.0, 1.0), (1.0, 0.0)),  # The slow one dies first, then its peer; 1.0 is the last of its stage.
        ((0.0, 0.0), (1.0, 0.5)),
    ]
