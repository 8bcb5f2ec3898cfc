"""Profiling: one profile of all ranks at a time, when it is wanted, and every function is told once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from holdfast.detect.counters import NodeCounters, Sample
from holdfast.diagnose.reduce import Known, WorkerPattern, number_of
from holdfast.guard.batches import Batch
from holdfast.guard.jobprofile import Errands, Progress, Wish, read_profile, to_case, wish_path
from holdfast.guard.profileshere import NodeProfile
from holdfast.guard.profiling import ProfileHabits, Profiling
from holdfast.guard.say import Say
from holdfast.telemetry import ProfileOrder, ProfileResult
from holdfast.values import AnyEvent, Profiled

RANKS = list(range(8))
OP = Known(kind="compute", stack=["aten::mm"])
READ = Known(kind="python", stack=["<built-in method pread>", "data.py(12): __getitem__"])


class Scene:
    """A job of two nodes with four ranks each, and what its controller did."""

    def __init__(self, tmp_path: Path, **habits: object) -> None:
        self.orders: list[ProfileOrder] = []
        self.asked: list[tuple[int, list[int]]] = []
        self.told: list[AnyEvent] = []
        self.run_dir = tmp_path
        errands = Errands(
            order=self.orders.append, functions=lambda node, numbers: self.asked.append((node, numbers))
        )
        known = ProfileHabits(folder=tmp_path / "profiles", **habits)  # type: ignore[arg-type]
        self.profiling = Profiling(known, errands, tell=self.told.append, say=Say())

    def look(self, now_s: float, *batches: Batch, step: int = 100) -> None:
        progress = Progress(
            step=step, step_s=0.1, ranks=RANKS, hosts=dict.fromkeys(RANKS, "host"), channels={}
        )
        self.profiling.look(batches, progress, now_s)

    def finish(self, now_s: float, *, slow: Sequence[int] = ()) -> Profiled:
        """Let both nodes answer, and then say what functions are."""
        order = self.orders[-1]
        self.look(now_s, *(batch(node, profile=node_profile(order, node, slow)) for node in (0, 1)))
        names = {number: known for known in (OP, READ) for number in [number_of(known)]}
        told = {number for _, numbers in self.asked for number in numbers}
        self.look(now_s + 1, batch(0, functions={number: names[number] for number in told}))
        event = self.told[-1]
        assert isinstance(event, Profiled)
        return event


def batch(node: int, profile: NodeProfile | None = None, functions: dict[int, Known] | None = None) -> Batch:
    sample = Sample(at_s=1.0, node=NodeCounters(), processes={})
    return Batch(
        node=node,
        host="host",
        steps=[],
        calls={},
        sample=sample,
        links=[],
        profile=profile,
        functions=functions or {},
    )


def node_profile(order: ProfileOrder, node: int, slow: Sequence[int]) -> NodeProfile:
    mine = RANKS[4 * node : 4 * node + 4]
    return NodeProfile(
        order=order.id,
        results=[
            ProfileResult(order=order.id, rank=rank, outcome="done", blocked_s=0.5 + rank / 10)
            for rank in mine
        ],
        patterns=[pattern(rank, 0.4 if rank in slow else 0.0) for rank in mine],
    )


def pattern(rank: int, reading: float) -> WorkerPattern:
    rows = [(OP, 0.5), (READ, reading)]
    shares = np.array([[beta, 0, 0] for _, beta in rows]) * 65_535
    return WorkerPattern(
        rank=rank,
        span_s=5.0,
        steps=50,
        numbers=np.array([number_of(known) for known, _ in rows], np.uint64).tobytes(),
        shares=shares.astype(np.uint16).tobytes(),
    )


def test_a_person_asks(tmp_path: Path) -> None:
    """All ranks get the same steps, some seconds ahead; who is slow is named, and it is kept."""
    scene = Scene(tmp_path)
    scene.look(1.0)
    assert scene.orders == []
    wish_path(tmp_path).write_bytes(msgspec.json.encode(Wish(id="abcd", steps=7)))
    scene.look(2.0)
    (order,) = scene.orders
    assert (order.id, order.ranks, order.last_step - order.first_step) == ("abcd", RANKS, 6)
    assert 100 + 3.0 / 0.1 <= order.first_step < 140
    event = scene.finish(10.0, slow=[5])
    assert [suspect.ranks for suspect in event.suspects] == [[5]]
    assert event.suspects[0].cause == "storage"
    assert event.blocked_s == pytest.approx(1.2)
    case = to_case(read_profile(tmp_path / "profiles" / "abcd" / "job.json"))
    assert case.verdict.suspects == event.suspects
    assert case.hosts[5] == "host"


def test_every_function_is_told_once(tmp_path: Path) -> None:
    """Though eight ranks on two nodes have them, one node is asked for each, once."""
    scene = Scene(tmp_path, every_steps=50)
    scene.look(1.0)
    scene.finish(5.0)
    numbers = [number for _, numbers in scene.asked for number in numbers]
    assert sorted(numbers) == sorted({number_of(OP), number_of(READ)})


def test_only_where_it_is_wanted(tmp_path: Path) -> None:
    """A slowdown starts a profile where people allowed it, and not again at once."""
    quiet = Scene(tmp_path / "a")
    quiet.profiling.want("slow since step 5", 1.0)
    quiet.look(1.0)
    assert quiet.orders == []
    scene = Scene(tmp_path / "b", when_slow=True)
    scene.profiling.want("slow since step 5", 1.0)
    scene.look(1.0)
    assert len(scene.orders) == 1
    assert scene.finish(10.0).why == "slow since step 5"
    scene.profiling.want("slow since step 90", 20.0)
    scene.look(21.0)
    assert len(scene.orders) == 1
    scene.profiling.want("slow since step 9000", 2000.0)
    scene.look(2001.0)
    assert len(scene.orders) == 2


def test_one_at_a_time(tmp_path: Path) -> None:
    """What is wanted meanwhile waits or is forgotten; two orders never overlap."""
    scene = Scene(tmp_path, every_steps=10)
    scene.look(1.0, step=100)
    scene.look(2.0, step=150)
    assert len(scene.orders) == 1


def test_who_is_missing_is_told(tmp_path: Path) -> None:
    """A node that never answers does not hold up the others for ever."""
    scene = Scene(tmp_path, every_steps=50)
    scene.look(1.0)
    order = scene.orders[0]
    scene.look(5.0, batch(0, profile=node_profile(order, 0, [])))
    assert scene.told == []
    scene.look(1000.0)
    scene.look(1001.0, batch(0, functions={number_of(OP): OP, number_of(READ): READ}))
    (event,) = scene.told
    assert isinstance(event, Profiled)
    assert event.missing == [4, 5, 6, 7]


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{"id": 5}', b'{"id": "../../etc"}', b'{"id": "x", "steps": -5}']
)
def test_a_request_that_makes_no_sense(tmp_path: Path, text: bytes) -> None:
    """It is not carried out, and the next one is."""
    scene = Scene(tmp_path)
    wish_path(tmp_path).write_bytes(text)
    scene.look(1.0)
    assert scene.orders == []
    wish_path(tmp_path).unlink()
    wish_path(tmp_path).write_bytes(msgspec.json.encode(Wish(id="good")))
    scene.look(2.0)
    assert [order.id for order in scene.orders] == ["good"]


def test_a_request_from_before_is_not_for_us(tmp_path: Path) -> None:
    """A guard that was started again does not profile again."""
    wish_path(tmp_path).write_bytes(msgspec.json.encode(Wish(id="old")))
    scene = Scene(tmp_path)
    scene.look(1.0)
    assert scene.orders == []
