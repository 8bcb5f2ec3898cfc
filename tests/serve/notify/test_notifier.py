"""The thread that sends messages, with a real receiver."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from receivers import NOW, OK, MarksInMemory, Receiver, hold, incident, run_with, say, status

from helpers import wait_until
from holdfast.errors import StoreError
from holdfast.incidents.values import RunView
from holdfast.serve.notify import Notifier
from holdfast.serve.notify.notifier import Patience
from holdfast.serve.store.values import RunRow

QUICK = Patience(timeout_s=5.0, pauses_s=(0.01, 0.02), give_up_s=0.2, fold_s=0.3)
STEADY = Patience(timeout_s=5.0, pauses_s=(0.01,), give_up_s=60.0, fold_s=60.0)
OPENED = run_with(incident("a", ("detected", 2)))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Somebody who takes messages."""
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def marks() -> MarksInMemory:
    """What is kept over restarts."""
    return MarksInMemory()


def _now() -> datetime:
    return NOW


def _notifier(marks: MarksInMemory, receiver: Receiver, patience: Patience = STEADY) -> Notifier:
    return Notifier(marks, receiver.url, page="http://127.0.0.1:1/", patience=patience, clock=_now)


def test_an_incident_is_told_once_whoever_asks_and_however_often(
    receiver: Receiver, marks: MarksInMemory
) -> None:
    """Also by a server that was started again, and knows nothing of what was before."""
    closed = run_with(incident("a", ("detected", 2), ("named", 1), ("closed", 0.5), lost_s=3.0))
    first = _notifier(marks, receiver)
    first.heed("k", None, OPENED)
    first.heed("k", None, OPENED)
    first.heed("k", OPENED, closed)
    wait_until(lambda: len(receiver.messages) == 3, "three messages")
    first.close()
    second = _notifier(marks, receiver)
    second.heed("k", None, closed)
    second.heed("other", None, OPENED)
    wait_until(lambda: len(receiver.messages) == 4, "the message of the other run")
    second.close()
    told = [text.split(": ")[1] for text in receiver.texts]
    assert told == ["Slow job, opened", "Slow job, named", "Slow job, closed", "Slow job, opened"]
    assert "<http://127.0.0.1:1/runs/k|big-run>" in receiver.messages[0]["blocks"][0]["text"]["text"]
    assert first.counts() == {"sent": 3, "failed": 0, "dropped": 0}


def test_a_receiver_that_recovers_gets_everything_in_order(receiver: Receiver, marks: MarksInMemory) -> None:
    """What could not be sent is tried again, and what comes later waits for it."""
    receiver.become(status(500), lambda connection: None, status(429), say(b"nonsense"), say(OK))
    notifier = _notifier(marks, receiver)
    notifier.heed("k", None, OPENED)
    notifier.heed("k", OPENED, run_with(incident("a", ("detected", 2), ("named", 1))))
    wait_until(lambda: notifier.counts()["sent"] == 2, "two messages")
    notifier.close()
    told = [text.split(": ")[1] for text in receiver.texts]
    assert told == ["Slow job, opened"] * 5 + ["Slow job, named"]


def test_what_could_not_be_sent_is_not_marked_as_sent(receiver: Receiver, marks: MarksInMemory) -> None:
    """It is given up after a time, and a later server may try again."""
    receiver.become(status(500))
    notifier = _notifier(marks, receiver, QUICK)
    notifier.heed("k", None, OPENED)
    wait_until(lambda: notifier.counts()["failed"] == 1, "giving up")
    notifier.close()
    assert marks.marks == set()
    receiver.become(say(OK))
    again = _notifier(marks, receiver)
    again.heed("k", None, OPENED)
    wait_until(lambda: again.counts()["sent"] == 1, "the message")
    again.close()
    assert marks.marks == {("k", "a", "opened")}


def test_a_receiver_that_wants_no_message_is_not_pestered(receiver: Receiver, marks: MarksInMemory) -> None:
    """A wrong address stays wrong; one attempt for each message."""
    receiver.become(status(404))
    notifier = _notifier(marks, receiver)
    notifier.heed("k", None, OPENED)
    wait_until(lambda: notifier.counts()["failed"] == 1, "giving up")
    notifier.close()
    assert len(receiver.messages) == 1


def test_who_hands_in_never_waits(receiver: Receiver, marks: MarksInMemory) -> None:
    """A receiver that hangs costs memory for so many messages and no more; the oldest are dropped."""
    free = threading.Event()
    receiver.become(hold(free), say(OK))
    patience = Patience(timeout_s=20.0, pauses_s=(0.01,), give_up_s=0.0, most_waiting=10)
    notifier = _notifier(marks, receiver, patience)
    notifier.heed("first", None, OPENED)
    wait_until(lambda: len(receiver.messages) == 1, "the first message")
    started_s = time.monotonic()
    for number in range(200):
        notifier.heed(f"k{number}", None, OPENED)
    lasted_s = time.monotonic() - started_s
    assert notifier.counts()["dropped"] == 190
    assert lasted_s < 10
    free.set()
    wait_until(lambda: notifier.counts()["sent"] == 10, "those that were left")
    notifier.close()
    assert {key for key, _, _ in marks.marks} == {f"k{number}" for number in range(190, 200)}


def _flaps(count: int) -> RunView:
    """A rank that gets slow and well again every half minute."""
    spans = [(9.0 - number / 2, 8.8 - number / 2) for number in range(count)]
    return run_with(
        *(
            incident(f"i{number}", ("detected", opened), ("closed", closed), ranks=(3,))
            for number, (opened, closed) in enumerate(spans)
        )
    )


def _wait_sent(notifier: Notifier, count: int) -> None:
    wait_until(lambda: notifier.counts()["sent"] >= count, f"{count} messages")


def test_flapping_is_folded(receiver: Receiver, marks: MarksInMemory) -> None:
    """One message at once, and no other before its time, however often it returns."""
    notifier = _notifier(marks, receiver, STEADY)
    before: RunView | None = None
    for count in range(1, 15):
        notifier.heed("k", before, _flaps(count))
        before = _flaps(count)
        _wait_sent(notifier, min(count + 1, 3))
    notifier.close()
    told = [text.split(": ")[1] for text in receiver.texts]
    assert told == ["Slow job, opened", "Slow job, closed", "Slow job, 2 times by now, closed"]


def test_the_last_word_on_flapping_comes_when_its_time_has_come(
    receiver: Receiver, marks: MarksInMemory
) -> None:
    """Nobody has to hand in anything more for that."""
    notifier = _notifier(marks, receiver, QUICK)
    notifier.heed("k", None, _flaps(2))
    wait_until(lambda: len(receiver.messages) == 3, "the first of it")
    for count in range(3, 12):
        notifier.heed("k", _flaps(count - 1), _flaps(count))
    wait_until(lambda: any("11 times" in text for text in receiver.texts), "the last of it")
    notifier.close()
    assert len(receiver.messages) < 8


def test_the_address_reaches_no_log(
    receiver: Receiver, marks: MarksInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """Trouble is told once, and its end once."""
    caplog.set_level(logging.DEBUG)
    receiver.become(status(500), status(502), lambda connection: None, say(OK))
    notifier = _notifier(marks, receiver)
    notifier.heed("k", None, OPENED)
    wait_until(lambda: notifier.counts()["sent"] == 1, "the message")
    notifier.close()
    assert [record.getMessage() for record in caplog.records] == [
        "the webhook does not take messages: it answers 500",
        "the webhook takes messages again",
    ]
    assert "secret" not in caplog.text
    assert "secret" not in repr(vars(notifier))


def test_a_store_that_fails_stops_nothing(
    receiver: Receiver, marks: MarksInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    """One message is lost, the next one is sent."""

    class Broken(MarksInMemory):
        def mark_sent(self, key: str, incident_id: str, stage: str) -> bool:
            if key == "bad":
                raise RuntimeError(f"cannot write {receiver.url}")
            return super().mark_sent(key, incident_id, stage)

    notifier = _notifier(Broken(), receiver)
    notifier.heed("bad", None, OPENED)
    notifier.heed("good", None, OPENED)
    wait_until(lambda: notifier.counts()["sent"] == 1, "the message")
    notifier.close()
    assert notifier.counts()["failed"] == 1
    assert "secret" not in caplog.text


class Away(MarksInMemory):
    """A store that is away for the first questions of a kind."""

    def __init__(self, **failures: int) -> None:
        super().__init__()
        self._failures = failures

    def run(self, key: str) -> RunRow | None:
        """Or fail."""
        self._ask("run")
        return super().run(key)

    def mark_sent(self, key: str, incident_id: str, stage: str) -> bool:
        """Or fail."""
        self._ask("mark_sent")
        return super().mark_sent(key, incident_id, stage)

    def unmark_sent(self, key: str, incident_id: str, stage: str) -> None:
        """Or fail."""
        self._ask("unmark_sent")
        super().unmark_sent(key, incident_id, stage)

    def _ask(self, name: str) -> None:
        left = self._failures.get(name, 0)
        self._failures[name] = left - 1
        if left > 0:
            raise StoreError("store x: the disk is full")


@pytest.mark.parametrize("name", ["run", "mark_sent"])
def test_a_message_waits_for_a_store_that_is_away(receiver: Receiver, name: str) -> None:
    """It may be about the last event of a run, and no other comes."""
    notifier = _notifier(Away(**{name: 3}), receiver)
    notifier.heed("k", None, OPENED)
    wait_until(lambda: notifier.counts()["sent"] == 1, "the message")
    notifier.close()
    assert notifier.counts() == {"sent": 1, "failed": 0, "dropped": 0}


def test_a_store_that_stays_away_is_not_waited_for_longer_than_a_receiver(receiver: Receiver) -> None:
    """The next message has its turn then."""
    marks = Away(mark_sent=1_000_000)
    notifier = _notifier(marks, receiver, QUICK)
    notifier.heed("k", None, OPENED)
    wait_until(lambda: notifier.counts()["failed"] == 1, "giving up")
    notifier.close()
    assert (receiver.messages, marks.marks) == ([], set())


def test_a_mark_is_taken_back_when_the_store_is_there_again(receiver: Receiver) -> None:
    """Else the next server would not send what this one could not."""
    receiver.become(status(404))
    marks = Away(unmark_sent=3)
    notifier = _notifier(marks, receiver)
    notifier.heed("k", None, OPENED)
    wait_until(lambda: notifier.counts()["failed"] == 1 and not marks.marks, "the mark to be taken back")
    notifier.close()
    assert notifier.counts() == {"sent": 0, "failed": 1, "dropped": 0}


def test_closing_does_not_wait_for_a_store_that_is_away(receiver: Receiver) -> None:
    """It is about to end, and the next server sends the message."""
    asked = threading.Event()

    class Telling(Away):
        def mark_sent(self, key: str, incident_id: str, stage: str) -> bool:
            asked.set()
            return super().mark_sent(key, incident_id, stage)

    notifier = _notifier(Telling(mark_sent=1_000_000), receiver, Patience(pauses_s=(3600.0,)))
    notifier.heed("k", None, OPENED)
    assert asked.wait(20)
    notifier.close()
    assert not notifier._thread.is_alive()


def test_closing_does_not_wait_for_a_receiver_that_is_down(receiver: Receiver, marks: MarksInMemory) -> None:
    """What was on its way is not marked, so that the next server sends it."""
    receiver.become(status(503, "Retry-After: 300"))
    notifier = _notifier(marks, receiver)
    notifier.heed("k", None, OPENED)
    wait_until(lambda: receiver.messages, "an attempt")
    started_s = time.monotonic()
    notifier.close()
    assert time.monotonic() - started_s < 15
    assert marks.marks == set()
