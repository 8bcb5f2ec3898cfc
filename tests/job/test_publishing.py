"""What the watch is told of a worker's work."""

from __future__ import annotations

from holdfast.job.publishing import count_operations
from holdfast.plan.ops import Op


def test_a_backward_in_one_piece_is_as_much_as_one_in_two() -> None:
    """A worker whose plan has fewer pieces has no less to do, and is no slower for it."""
    whole = [Op("F", 0, 0, 1), Op("B", 0, 0, 1)]
    parts = [Op("F", 0, 0, 1), Op("I", 0, 0, 1), Op("W", 0, 0, 1)]
    assert count_operations(whole) == count_operations(parts) == 3
