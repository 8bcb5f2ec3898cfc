"""Both ends of every message derive the same peer and tag, and the order of forwards cannot lock up."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.job.routes import NOBODY, Instruction, forward_only, instructions
from holdfast.plan.choose import choose
from holdfast.plan.ops import Schedule
from holdfast.plan.problem import Problem, Worker, make_speeds

DEAD = [(), ((1, 0),), ((0, 1), (1, 2)), ((0, 0), (0, 1), (0, 2))]


def orders_of(schedule: Schedule) -> dict[int, list[Instruction]]:
    """Return what every rank does."""
    return {rank: instructions(schedule, rank) for rank in range(schedule.dp * schedule.pp)}


def messages_of(orders: dict[int, list[Instruction]], *, is_sent: bool) -> Counter[tuple[int, int, int]]:
    """Return all messages as sender, receiver and tag, seen from one end."""
    if is_sent:
        return Counter((r, i.target, i.tag_out) for r in orders for i in orders[r] if i.target != NOBODY)
    return Counter((i.source, r, i.tag_in) for r in orders for i in orders[r] if i.source != NOBODY)


def run_dry(orders: dict[int, list[Instruction]]) -> None:
    """Carry the instructions out with messages that take no time; fail if all wait."""
    done, sent = dict.fromkeys(orders, 0), set[tuple[int, int, int]]()
    is_moving = True
    while is_moving:
        is_moving = False
        for rank, order in orders.items():
            while done[rank] < len(order):
                each = order[done[rank]]
                if each.source != NOBODY and (each.source, rank, each.tag_in) not in sent:
                    break
                sent.add((rank, each.target, each.tag_out))
                done[rank] += 1
                is_moving = True
    assert {rank: len(order) for rank, order in orders.items()} == done


@pytest.mark.parametrize("fault_free", ["zero_bubble", "1f1b"])
@pytest.mark.parametrize("dead", DEAD)
def test_every_message_is_sent_once_and_received_once(
    dead: tuple[tuple[int, int], ...], fault_free: str
) -> None:
    """With nobody dead or some: what one end sends, the other end receives, under the same tag."""
    speeds = make_speeds(2, 3, {Worker(*each): 0.0 for each in dead})
    problem = Problem(dp=2, pp=3, microbatches=4, speeds=speeds)
    orders = orders_of(choose(problem, fault_free=fault_free))
    sent = messages_of(orders, is_sent=True)
    assert sent == messages_of(orders, is_sent=False)
    assert set(sent.values()) == {1}
    assert len(sent) == 2 * 2 * 2 * 4  # Forth and back, two borders, two pipelines, four micro-batches.
    run_dry(orders)


@given(
    dp=st.integers(1, 4),
    pp=st.integers(1, 4),
    microbatches=st.integers(1, 5),
    chance=st.randoms(use_true_random=False),
)
def test_forwards_alone_do_all_work_once_and_never_lock_up(
    dp: int, pp: int, microbatches: int, chance: object
) -> None:
    """Whoever is left of each stage, every micro-batch passes every stage once."""
    live = [rank for rank in range(dp * pp) if rank < pp or chance.random() < 0.6]  # type: ignore[attr-defined]
    schedule = forward_only(live, dp=dp, pp=pp, microbatches=microbatches)
    orders = orders_of(schedule)
    work = Counter((i.op.pipeline, i.op.microbatch, i.op.stage) for order in orders.values() for i in order)
    assert set(work.values()) == {1}
    assert len(work) == dp * pp * microbatches
    assert all(rank in live for rank, order in orders.items() if order)
    assert all(i.op.stage == rank % pp for rank, order in orders.items() for i in order)
    run_dry(orders)


def test_first_and_last_stage_talk_to_one_side() -> None:
    """Data comes from nobody, and the loss goes to nobody."""
    orders = orders_of(forward_only([0, 1], dp=1, pp=2, microbatches=1))
    assert [(each.source, each.target) for each in orders[0]] == [(NOBODY, 1)]
    assert [(each.source, each.target) for each in orders[1]] == [(0, NOBODY)]
