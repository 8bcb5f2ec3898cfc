"""Whom the controller reckons with while workers come and go."""

from __future__ import annotations

from batches import make_batch
from helpers import Ears
from holdfast.guard.batches import Batch
from holdfast.guard.inspector import Inspector
from holdfast.telemetry import Channel, InCall, Step
from holdfast.values import AnyEvent, SuspectsNamed
from simulatedsteps import Harm, SimulatedJob


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


def test_who_gets_slow_while_all_are_is_named_once_the_others_are_well(ears: Ears) -> None:
    """The steps take as long as before: it is no change, but what was told names nobody in particular."""
    everybody = Harm(kind="compute", ranks=(0, 1, 2, 3), more_s=0.2, first=60, until=110)
    one = Harm(kind="compute", ranks=(2,), more_s=0.2, first=110)
    told: list[AnyEvent] = []
    known_since: list[int | None] = []

    def tell(event: AnyEvent) -> None:
        told.append(event)
        if isinstance(event, SuspectsNamed):
            trouble = inspector.lookout.trouble
            known_since.append(trouble.since_step if trouble is not None else None)

    inspector = Inspector(tell=tell, say=ears.say, ask=lambda ask: None)
    for steps in SimulatedJob(harms=(everybody, one), steps=260).run():
        now_s = steps[0].ended_s
        calls = {
            step.rank: InCall(rank=step.rank, calls=1, steps=1, since_s=None, channel=0) for step in steps
        }
        inspector.inspect([make_batch(0, now_s, steps=steps, calls=calls)], now_s)
    named = [event for event in told if isinstance(event, SuspectsNamed)]
    assert [[suspect.ranks for suspect in event.suspects] for event in named][1:] == [[[2]]], named
    assert all(len(suspect.ranks) > 2 for suspect in named[0].suspects)
    assert named[1].since_step > 100
    assert known_since == [event.since_step for event in named]  # Who acts reckons from there.
