"""A judge of several nodes whose batches do not come at the same time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batches import make_batch
from helpers import Ears
from holdfast.guard.batches import Batch
from holdfast.guard.judging import Bench, Judge
from holdfast.telemetry import Ask, InCall, Step
from holdfast.values import AnyEvent, JobHung


def _judge(folder: Path, ears: Ears) -> tuple[Judge, list[AnyEvent], list[Ask]]:
    told: list[AnyEvent] = []
    asked: list[Ask] = []
    bench = Bench(dumps=folder / "flight_recorder", tell=told.append, say=ears.say)
    return Judge(bench, asked.append), told, asked


def _batch(node: int, now_s: int, *, step: int | None, calls: int, is_waiting: bool) -> Batch:
    more: dict[str, Any] = {"steps": []}
    if step is not None:
        more["steps"] = [Step(rank=node, step=step, ended_s=float(now_s), duration_s=1.0)]
    since_s = now_s - 0.5 if is_waiting else None
    more["calls"] = {node: InCall(rank=node, calls=calls, steps=step or 9, since_s=since_s, channel=1)}
    return make_batch(node, float(now_s), **more)


def _train(judge: Judge) -> None:
    for now_s in range(10):
        batches = [_batch(node, now_s, step=now_s, calls=now_s, is_waiting=True) for node in (0, 1)]
        judge.judge(batches, float(now_s), has_watchdog=False)


def test_a_hang_is_noticed_although_a_nodes_batches_come_unevenly(tmp_path: Path, ears: Ears) -> None:
    """None in one look and two in the next is no sign of life; the rank that does not wait is named."""
    judge, told, asked = _judge(tmp_path, ears)
    _train(judge)
    for now_s in range(10, 40):
        late = [_batch(1, now_s - ago, step=None, calls=9, is_waiting=False) for ago in (1, 0)]
        mine = _batch(0, now_s, step=None, calls=10, is_waiting=True)
        judge.judge([mine, *(late if now_s % 2 else [])], float(now_s), has_watchdog=False)
    [hung] = [event for event in told if isinstance(event, JobHung)]
    assert [suspect.ranks for suspect in hung.suspects] == [[1]]
    assert [ask.ranks for ask in asked] == [[0, 1]]


def test_a_node_that_is_no_longer_heard_of_is_still_asked_about(tmp_path: Path, ears: Ears) -> None:
    """Its last word stands for a while, so that its ranks are not forgotten just when they hang."""
    judge, told, asked = _judge(tmp_path, ears)
    _train(judge)
    for now_s in range(10, 40):
        mine = _batch(0, now_s, step=None, calls=10, is_waiting=True)
        judge.judge([mine], float(now_s), has_watchdog=False)
    assert [ask.ranks for ask in asked] == [[0, 1]]
    assert [type(event) for event in told] == [JobHung]


def test_a_node_that_left_long_ago_is_forgotten(tmp_path: Path, ears: Ears) -> None:
    """Its ranks are somebody else's by then."""
    judge, _, asked = _judge(tmp_path, ears)
    _train(judge)
    for now_s in range(10, 100):
        judge.judge(
            [_batch(0, now_s, step=now_s, calls=now_s, is_waiting=True)], float(now_s), has_watchdog=False
        )
    for now_s in range(100, 130):
        judge.judge(
            [_batch(0, now_s, step=None, calls=99, is_waiting=True)], float(now_s), has_watchdog=False
        )
    assert [ask.ranks for ask in asked] == [[0]]


def test_silence_is_the_watchdogs_business_where_there_is_one(tmp_path: Path, ears: Ears) -> None:
    """It knows more of a pipeline's workers."""
    judge, told, _ = _judge(tmp_path, ears)
    _train(judge)
    for now_s in range(10, 60):
        judge.judge([_batch(0, now_s, step=None, calls=10, is_waiting=True)], float(now_s), has_watchdog=True)
    assert told == []
