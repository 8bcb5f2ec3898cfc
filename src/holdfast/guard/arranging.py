"""What is in force in a job, and what it depends on, in the words of those who decide. Pure."""

from __future__ import annotations

from holdfast.job.wishes import Crew, Granted
from holdfast.membership import Arranged
from holdfast.mitigate.condition import Arrangement, make_speeds
from holdfast.mitigate.model import Model, Replicas, Shape, Stages

DATA_SHARE = 0.1
"""Of a step, for gradients: only the product with a link's factor is known, which is what was lost."""


def model_of(crew: Crew | None, granted: Granted | None) -> Model:
    """Return how a job depends on its ranks; where they do not meet, only machines can be exchanged."""
    if granted is not None and granted.is_shared_by_stage:
        return Stages(
            Shape(dp=granted.dp, pp=granted.pp, microbatches=granted.microbatches, data_share=DATA_SHARE)
        )
    nodes = tuple(crew.nodes) if crew is not None else ()
    shape = Shape(
        dp=granted.dp if granted is not None else len(nodes),
        microbatches=granted.microbatches if granted is not None else 1,
        data_share=DATA_SHARE,
        nodes=nodes,
        host=crew.host if crew is not None else None,
    )
    # As long as nobody knows who has to stay, nobody goes.
    spares = crew.spares if crew is not None and crew.host is not None else 0
    return Replicas(shape, spares=spares * (len(nodes) // (1 + max(nodes, default=0))))


def arrangement_of(granted: Granted, last: Arranged | None) -> Arrangement | None:
    """Return what is in force if somebody has wished for it; None where it came about in another way."""
    wish = last if last is not None and last.number == granted.wish else Arranged(number=0)
    for holders in ((), tuple(wish.holders)):  # Workers may have met without the places being changed.
        held = {rank: place for place, rank in enumerate(holders or range(granted.dp * granted.pp))}
        if granted.places == held:
            return Arrangement(reckoned=make_speeds(wish.speeds), holders=holders)
    return None


def moves_between(before: Arrangement, after: Arrangement, places: int) -> list[tuple[int, int]]:
    """Return from which place to which workers go."""
    held = {before.holder(place): place for place in range(places)}
    return [
        (held[after.holder(place)], place) for place in range(places) if held[after.holder(place)] != place
    ]
