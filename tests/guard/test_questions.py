"""Questions and Inquiry: what a guard asks the workers of its node, and how long it waits for answers."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import msgspec
import pytest

from helpers import wait_until
from holdfast.detect.counters import NodeCounters, Sample
from holdfast.guard.batches import Batch
from holdfast.guard.inquiry import LOOK_FOR_S, Inquiry
from holdfast.guard.questions import Questions
from holdfast.job.attendant import Attendant, answer_path, ask_path
from holdfast.telemetry import Ask, Lines


def an_ask(name: str, *ranks: int, duration_s: float = 0.05) -> Ask:
    """Return a question."""
    return Ask(id=name, ranks=list(ranks), duration_s=duration_s)


def lines_of(ask: str, rank: int) -> Lines:
    """Return an answer with nothing in it."""
    return Lines(ask=ask, rank=rank, samples=1, lines=[], stack=[])


def write(folder: Path, lines: Lines) -> None:
    """Lay an answer where a rank would."""
    answer_path(folder, lines.ask, lines.rank).write_bytes(msgspec.json.encode(lines))


def test_attendants_answer_what_was_asked(tmp_path: Path) -> None:
    """Two of them, each for its own rank; who was not asked stays silent."""
    folder = tmp_path / "rings"
    folder.mkdir()
    for rank in range(3):
        Attendant(folder, rank=rank, thread=threading.get_ident()).start()
    questions = Questions(folder)
    assert questions.answers() == []
    questions.ask(an_ask("first", 0, 2))
    wait_until(lambda: len(questions.answers()) == 2, "two answers")
    told = questions.answers()
    assert [(lines.ask, lines.rank) for lines in told] == [("first", 0), ("first", 2)]
    assert all(any(__file__ in frame for frame in lines.stack) for lines in told)
    shutil.rmtree(folder)  # Their threads end with it.


def test_a_newer_question_replaces_the_older(tmp_path: Path) -> None:
    """Answers to what is no longer asked are removed, and not told."""
    questions = Questions(tmp_path)
    questions.ask(an_ask("first", 0))
    write(tmp_path, lines_of("first", 0))
    assert questions.answers() == [lines_of("first", 0)]
    questions.ask(an_ask("second", 0))
    assert questions.answers() == []
    assert not answer_path(tmp_path, "first", 0).exists()
    assert msgspec.json.decode(ask_path(tmp_path).read_bytes(), type=Ask).id == "second"


@pytest.mark.parametrize("garbage", [b"", b"{", b"\xff", b'{"ask": 1}'])
def test_garbage_is_no_answer(tmp_path: Path, garbage: bytes) -> None:
    """One rank's broken file does not hide the other's."""
    questions = Questions(tmp_path)
    questions.ask(an_ask("x", 0, 1))
    answer_path(tmp_path, "x", 0).write_bytes(garbage)
    write(tmp_path, lines_of("x", 1))
    assert questions.answers() == [lines_of("x", 1)]


def test_a_folder_that_is_gone_is_asked_nothing(tmp_path: Path) -> None:
    """The guard does not stumble over it."""
    questions = Questions(tmp_path / "absent")
    questions.ask(an_ask("x", 0))
    questions.ask(an_ask("y", 0))
    assert questions.answers() == []


def a_batch(*answers: Lines) -> Batch:
    """Return a second's batch with nothing but answers."""
    sample = Sample(at_s=0.0, node=NodeCounters(), processes={})
    return Batch(node=0, host="a", steps=[], calls={}, sample=sample, links=[], answers=list(answers))


def test_an_inquiry_is_over_when_all_have_answered() -> None:
    """Answers come as they come; those to older questions count for nothing."""
    sent: list[Ask] = []
    inquiry = Inquiry(sent.append)
    assert inquiry.is_over(0.0), "nothing was asked"
    inquiry.ask([0, 1], now_s=100.0)
    assert (sent[0].ranks, sent[0].duration_s) == ([0, 1], LOOK_FOR_S)
    inquiry.take([a_batch(lines_of(sent[0].id, 0), lines_of("older", 1))])
    assert not inquiry.is_over(101.0)
    inquiry.take([a_batch(lines_of(sent[0].id, 0))])
    assert not inquiry.is_over(102.0)
    inquiry.take([a_batch(lines_of(sent[0].id, 1))])
    assert inquiry.is_over(102.0)
    assert sorted(inquiry.answers) == [0, 1]


def test_an_inquiry_is_over_when_nobody_answers() -> None:
    """A dead rank is not waited for for ever; what comes later still counts."""
    sent: list[Ask] = []
    inquiry = Inquiry(sent.append)
    inquiry.ask([0, 1], now_s=100.0)
    inquiry.take([a_batch(lines_of(sent[0].id, 0))])
    assert not inquiry.is_over(103.0)
    assert inquiry.is_over(110.0)
    inquiry.take([a_batch(lines_of(sent[0].id, 1))])
    assert sorted(inquiry.answers) == [0, 1]


def test_asking_again_forgets_what_was_answered() -> None:
    """Every question has an id of its own."""
    sent: list[Ask] = []
    inquiry = Inquiry(sent.append)
    inquiry.ask([0], now_s=0.0)
    inquiry.take([a_batch(lines_of(sent[0].id, 0))])
    inquiry.ask([0], now_s=1.0, duration_s=0.0, dumps="/tmp")
    assert inquiry.answers == {}
    assert sent[0].id != sent[1].id
    assert (sent[1].duration_s, sent[1].dumps) == (0.0, "/tmp")
    inquiry.take([a_batch(lines_of(sent[0].id, 0))])
    assert inquiry.answers == {}
