"""Whom the controller reckons with while workers come and go."""

from __future__ import annotations

from batches import make_batch
from helpers import Ears
from holdfast.guard.batches import Batch
from holdfast.guard.inspector import Inspector
from holdfast.telemetry import Channel, InCall, Step


def _batch(node: int, now_s: int, *ranks: int) -> Batch:
    steps = [Step(rank=rank, step=now_s, ended_s=float(now_s), duration_s=1.0) for rank in ranks]
    calls = {rank: InCall(rank=rank, calls=now_s, steps=now_s, since_s=None, channel=0) for rank in ranks}
    channels = {rank: [Channel(number=1, kind="group", ranks=list(ranks))] for rank in ranks}
    return make_batch(node, float(now_s), steps=steps, calls=calls, channels=channels)


def test_who_left_for_good_is_forgotten_and_who_is_of_another_node_is_not(ears: Ears) -> None:
    """Otherwise a job whose nodes come and go would ask ever more workers that no longer exist."""
    inspector = Inspector(tell=lambda event: None, say=ears.say, ask=lambda ask: None)
    for now_s in range(30):
        inspector.inspect([_batch(0, now_s, 0, 1), _batch(1, now_s, 2)], float(now_s))
    for now_s in range(30, 40):
        inspector.inspect([_batch(0, now_s, 1, 3)], float(now_s))
    progress = inspector.progress()
    assert progress is not None
    assert progress.ranks == sorted(progress.channels) == sorted(progress.hosts) == [1, 2, 3]
