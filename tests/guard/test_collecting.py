"""The collector: real connections; every node's batches come in, and questions go out."""

from __future__ import annotations

import socket
import struct

import pytest
from collectors import Kept, kept

from batches import make_batch
from helpers import wait_until
from holdfast.guard import collecting
from holdfast.guard.collecting import narrow
from holdfast.guard.frames import Heard, Question, make_report
from holdfast.telemetry import Ask, Channel, Step

__all__ = ["kept"]  # A fixture.


def test_batches_of_all_nodes_come_in_their_order(kept: Kept) -> None:
    """Each node's in the order in which it sent them."""
    callers = [kept.call(node) for node in (1, 2)]
    assert kept.collector.nodes == [1, 2]
    for at_s in (1.0, 2.0, 3.0):
        for node, caller in zip((1, 2), callers, strict=True):
            caller.report(make_batch(node, at_s), sent_s=at_s)
    batches = kept.wait_for(6)
    for node in (1, 2):
        times = [batch.sample.at_s for batch in batches if batch.node == node]
        assert len(times) == 3
        assert times == sorted(times)


def test_all_times_of_a_batch_are_put_on_the_clock_of_the_controller(kept: Kept) -> None:
    """Sent at 100 by its own clock and taken in at 1000 by ours: 900 are added to each, durations stay."""
    kept.call().report(make_batch(at_s=99.0), sent_s=100.0)
    [batch] = kept.wait_for(1)
    assert (batch.sample.at_s, batch.steps[0].ended_s, batch.steps[0].duration_s) == (999.0, 998.5, 0.25)
    assert (batch.calls[1].since_s, batch.links[0].at_s) == (998.75, 998.25)


def test_a_batch_that_was_held_up_does_not_move_the_clock(kept: Kept) -> None:
    """The least delay seen is the offset, whoever came late."""
    caller = kept.call()
    caller.report(make_batch(at_s=100.0), sent_s=100.0)
    kept.wait_for(1)
    kept.now_s = 1010.0
    caller.report(make_batch(at_s=101.0), sent_s=101.0)
    assert [batch.sample.at_s for batch in kept.wait_for(2)] == [1000.0, 1001.0]


def test_members_of_a_group_share_one_list_of_it(kept: Kept) -> None:
    """Ten thousand lists of ten thousand ranks would fill the memory."""
    for node in (1, 2):
        group = Channel(number=1, kind="group", ranks=list(range(100)), name="dp")
        kept.call(node).report(make_batch(node, channels={node: [group]}))
    first, second = (batch.channels[batch.node][0] for batch in kept.wait_for(2))
    assert first == second == Channel(number=1, kind="group", ranks=list(range(100)), name="dp")
    assert first.ranks is second.ranks


def test_a_node_that_vanishes_leaves_what_it_has_sent(kept: Kept) -> None:
    """Its batches just stop."""
    caller = kept.call()
    caller.report(make_batch())
    # A close with this option sends a reset.
    wait_until(lambda: kept.collector.nodes == [1])
    kept.wait_for(1)
    caller.report(make_batch())
    caller.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
    caller.close()
    wait_until(lambda: kept.collector.nodes == [], "its end")
    assert kept.collector.take() in ([], [kept.batches[0]])  # A reset may overtake what was sent.


def test_memory_for_a_node_is_bounded_and_the_oldest_go_first(kept: Kept) -> None:
    """A guard that is held up for minutes finds the newest batches, and how many it has missed."""
    caller = kept.call()
    for second in range(100):
        step = Step(rank=1, step=second, ended_s=0.0, duration_s=1.0)
        caller.report(make_batch(steps=[step]))
    wait_until(lambda: kept.collector.dropped == 70, "the hundredth batch")
    taken = [batch.steps[0].step for batch in kept.collector.take()]
    assert taken == list(range(70, 100))


def test_a_question_reaches_the_nodes_whose_ranks_it_is_put_to(kept: Kept) -> None:
    """Each hears of its own ranks only; who has none is not asked."""
    callers = {node: kept.call(node) for node in (1, 2, 3)}
    for node, caller in callers.items():
        caller.report(make_batch(node))
    kept.wait_for(3)
    kept.collector.ask(Ask(id="q", ranks=[0, 1, 2], duration_s=1.5))
    for node in (1, 2):
        assert callers[node].hear() == Question(ask=Ask(id="q", ranks=[node], duration_s=1.5))
    kept.collector.ask(Ask(id="r", ranks=[3], duration_s=1.5))
    assert callers[3].hear() == Question(ask=Ask(id="r", ranks=[3], duration_s=1.5))


def test_what_nodes_may_send_of_their_dumps_is_shared_among_them(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All together it is a number of bytes that one machine can take."""
    monkeypatch.setattr(collecting, "_ALL_DUMPS_BYTES", 3000)
    callers = [kept.call(node) for node in (1, 2, 3)]
    for node, caller in zip((1, 2, 3), callers, strict=True):
        caller.report(make_batch(node))
    kept.wait_for(3)
    kept.collector.ask(Ask(id="q", ranks=[1, 2, 3], duration_s=0.0, dumps="/somewhere"))
    questions = [caller.hear() for caller in callers]
    assert [each.dump_bytes for each in questions if isinstance(each, Question)] == [1000, 1000, 1000]


def test_dumps_that_come_along_are_handed_on(kept: Kept) -> None:
    """Once, when the batch is taken."""
    kept.call().send(make_report(make_batch(), sent_s=0.0, dumps={1: b"dump"}))
    kept.wait_for(1)
    assert kept.dumps == [{1: b"dump"}]


def test_a_node_that_does_not_listen_keeps_nobody_waiting(kept: Kept) -> None:
    """Questions that find no room are dropped; the other node hears all of its own."""
    deaf, other = kept.call(1), kept.call(2)
    for node, caller in ((1, deaf), (2, other)):
        caller.report(make_batch(node))
    kept.wait_for(2)
    asked = "x" * 100_000
    for number in range(200):
        kept.collector.ask(Ask(id=f"{asked}{number}", ranks=[1, 2], duration_s=0.0))
        question = other.hear()
        while question == Heard():
            question = other.hear()
        assert isinstance(question, Question)
        assert question.ask.id == f"{asked}{number}"


def test_nodes_hear_again_and_again_that_somebody_is_at_work(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only while the guard's loop goes on, which takes the batches."""
    monkeypatch.setattr(collecting, "_BEAT_S", 0.0)
    caller = kept.call()
    for _ in range(3):
        kept.collector.take()
        assert caller.hear() == Heard()


def test_a_question_is_narrowed_to_some_ranks() -> None:
    """In the order in which they were named."""
    ask = Ask(id="q", ranks=[3, 1, 2], duration_s=1.0, dumps="/d")
    assert narrow(ask, {2, 3}) == Ask(id="q", ranks=[3, 2], duration_s=1.0, dumps="/d")
