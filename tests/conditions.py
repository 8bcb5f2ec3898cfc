"""Jobs of the reliability tests in one line each, and the failure rates of two clusters of Meta."""

from __future__ import annotations

from holdfast.reliability.ettr import Conditions

RSC_1, RSC_2 = 6.50, 2.34
"""Per 1000 node-days."""


def job(  # noqa: PLR0913 - in the order of the tables that the rows below come from.
    nodes: int,
    rate: float,
    checkpoint_min: float,
    *,
    restart_min: float = 5,
    write_min: float = 0,
    queue_min: float = 0,
) -> Conditions:
    """Conditions in one line."""
    return Conditions(
        nodes=nodes,
        rate_per_1000_node_days=rate,
        checkpoint_min=checkpoint_min,
        restart_min=restart_min,
        write_min=write_min,
        queue_min=queue_min,
    )
