"""What guards do with what they see: those of two nodes in one process, through a real connection."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batches import make_batch
from helpers import Ears, wait_until
from holdfast.guard.batches import Batch, Gatherer
from holdfast.guard.duties import Alone, Controlling, Reports, make_duty
from holdfast.guard.judging import Bench
from holdfast.guard.reporting import Meeting, Reporting, accept
from holdfast.guard.rings import Rings
from holdfast.guard.shipping import LED_S
from holdfast.job.attendant import ask_path
from holdfast.telemetry import Ask, Lines, LineSeen, Step
from holdfast.values import AnyEvent, JobSlowed, SuspectsNamed

STEP_S = 0.05
STEPS = 20
"""In a second."""


class Side:
    """One guard's folders, events and duty."""

    def __init__(self, folder: Path, ears: Ears, reporting: Reporting | None, *, node: int) -> None:
        self._node = node
        self._rings = folder / f"rings{node}"
        self._rings.mkdir()
        self.told: list[AnyEvent] = []
        bench = Bench(dumps=folder / f"run{node}" / "flight_recorder", tell=self.told.append, say=ears.say)
        gatherer = Gatherer(self._rings, Rings(self._rings), node=node, host=f"host{node}")
        self.duty = make_duty(reporting, gatherer, bench, node=node)

    def asked(self) -> Ask | None:
        """What the workers of this node find to answer."""
        self.duty.poll()
        path = ask_path(self._rings)
        return msgspec.json.decode(path.read_bytes(), type=Ask) if path.exists() else None

    def pass_second(self, second: int, own_s: float, wait_s: float, **more: Any) -> None:
        """Let the rank of this node make its steps of a second, each of so much work and waiting."""
        ask = self.asked()
        answers = [_answer(ask, self._node)] if ask is not None else []
        batch = _second(self._node, second, own_s, wait_s, answers=answers, **more)
        self.duty.take(batch, float(second), has_watchdog=False)


def _second(node: int, second: int, own_s: float, wait_s: float, **more: Any) -> Batch:
    steps = [
        Step(
            rank=node,
            step=STEPS * second + number,
            ended_s=second + number * STEP_S,
            duration_s=own_s + wait_s,
            wait_s=wait_s,
            **more.pop("step", {}),
        )
        for number in range(STEPS)
    ]
    return make_batch(node, float(second), steps=steps, **more)


def _answer(ask: Ask, rank: int) -> Lines:
    seen = LineSeen(count=100, file="/job/train.py", line=5, function="load", source="read()", inner=[])
    return Lines(ask=ask.id, rank=rank, samples=100, lines=[seen] if rank == 1 else [], stack=[])


class Two:
    """The guards of two nodes."""

    def __init__(self, folder: Path, ears: Ears) -> None:
        self._meeting = Meeting()
        word = self._meeting.invite("127.0.0.1", attempt=0)
        mine = self._meeting.host()
        assert mine is not None
        assert mine.listen_fd is not None
        # A process of its own would have a descriptor of its own.
        mine = msgspec.structs.replace(mine, listen_fd=os.dup(mine.listen_fd))
        self.first = Side(folder, ears, mine, node=0)
        self.second = Side(folder, ears, accept(word, attempt=0), node=1)
        assert isinstance(self.first.duty, Controlling)
        assert isinstance(self.second.duty, Reports)
        self.collector = self.first.duty.collector
        self.shipper = self.second.duty.shipper
        wait_until(lambda: self.shipper.connections == 1, "the connection")

    def close(self) -> None:
        """Let go of all connections."""
        self.shipper.close()
        self.collector.close()
        self._meeting.close()


@pytest.fixture
def two(tmp_path: Path, ears: Ears) -> Iterator[Two]:
    """The guards of two nodes, which are closed afterwards."""
    two = Two(tmp_path, ears)
    yield two
    two.close()


def test_the_controller_judges_the_ranks_of_both_nodes_and_asks_them(two: Two) -> None:
    """Rank 1 needs more time of its own: node 0 asks both, hears of a line, names it; node 1 is silent."""
    for second in range(5):
        two.second.pass_second(second, 0.04, 0.01)
        two.first.pass_second(second, 0.04, 0.01)
    second = 5

    def is_named() -> bool:
        nonlocal second
        two.second.pass_second(second, 0.09, 0.01)
        time.sleep(0.1)  # A second's batch is there before the next one's, as in life.
        two.first.pass_second(second, 0.04, 0.06)
        second += 1
        return any(isinstance(event, SuspectsNamed) and event.since_step for event in two.first.told)

    wait_until(is_named, "a name")
    assert [type(event) for event in two.first.told] == [JobSlowed, SuspectsNamed]
    named = two.first.told[1]
    assert isinstance(named, SuspectsNamed)
    assert [suspect.ranks for suspect in named.suspects] == [[1]]
    assert named.suspects[0].hosts == ["host1"]
    assert "train.py:5 load" in " ".join(named.suspects[0].evidence)
    asked = two.first.asked(), two.second.asked()
    assert [each.ranks for each in asked if each is not None] == [[0], [1]]
    assert two.second.told == []


def test_a_guard_whose_controller_is_gone_judges_alone(two: Two) -> None:
    """Some seconds after it was heard last; what it told before was nothing."""
    later = int(two.shipper.heard_s + LED_S) + 1
    two.collector.close()
    for second in range(later, later + 5):
        two.second.pass_second(second, 0.04, 0.01)
    for second in range(later + 5, later + 12):
        two.second.pass_second(second, 0.09, 0.01)
    assert JobSlowed in [type(event) for event in two.second.told]


def test_a_guard_that_was_told_nothing_judges_alone(tmp_path: Path, ears: Ears) -> None:
    """As on a single node, or under another launcher."""
    side = Side(tmp_path, ears, None, node=3)
    assert isinstance(side.duty, Alone)
    for second in range(5):
        side.pass_second(second, 0.04, 0.01)
    for second in range(5, 12):
        side.pass_second(second, 0.09, 0.01)
    assert JobSlowed in [type(event) for event in side.told]
