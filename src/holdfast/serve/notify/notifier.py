"""Sends messages in a thread of its own; whoever hands them in never waits.

A message is marked in the store before it is sent, so that no server that is started later sends it again;
the mark is taken back where it could not be sent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol, TypeVar
from urllib.parse import quote

import msgspec

from holdfast.errors import StoreError
from holdfast.incidents.values import RunView
from holdfast.serve.notify.deciding import Message, what_to_send
from holdfast.serve.notify.posting import parse_address, post
from holdfast.serve.notify.slack import make_payload
from holdfast.serve.store.values import RunRow

_LOG = logging.getLogger("holdfast.serve")
_MOST_FOLDS = 1000
_ENDING_S = 2.0
"""Longer than that the server does not wait for a message on its way when it ends."""

T = TypeVar("T")


class Marks(Protocol):
    """The part of the store that is needed."""

    def run(self, key: str) -> RunRow | None:
        """Return what is known of a run."""

    def mark_sent(self, key: str, incident_id: str, stage: str) -> bool:
        """Return True the first time only."""

    def unmark_sent(self, key: str, incident_id: str, stage: str) -> None:
        """Make the next time the first."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long things may take."""

    timeout_s: float = 10.0
    """For one attempt."""
    pauses_s: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
    """After the n-th attempt in a row that failed; the last one for all that follow."""
    give_up_s: float = 3600.0
    """A message that could not be sent for so long is dropped."""
    fold_s: float = 600.0
    """Between two messages about the same incident that returns again and again."""
    most_waiting: int = 1000
    """Messages; the oldest are dropped."""


class _Letter(msgspec.Struct, frozen=True):
    key: str
    message: Message
    since_s: float


class Notifier:
    """Tells a webhook what happens to runs."""

    def __init__(
        self,
        store: Marks,
        url: str,
        *,
        page: str = "",
        patience: Patience | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Send to an address, with links to the server's ``page`` where that is given."""
        self._store = store
        self._address = parse_address(url)
        self._page = page.rstrip("/")
        self._patience = patience or Patience()
        self._clock = clock
        self._letters: deque[_Letter] = deque()
        self._folds: dict[tuple[str, str], _Letter] = {}
        """The last word on each incident that returned, until it may be sent."""
        self._folded_s: dict[tuple[str, str], float] = {}
        """When such a word was sent."""
        self._counts: Counter[str] = Counter(sent=0, failed=0, dropped=0)
        self._condition = threading.Condition()
        self._is_ended = False
        self._is_troubled = False
        self._thread = threading.Thread(target=self._run, name="holdfast-notifier", daemon=True)
        self._thread.start()

    def heed(self, key: str, before: RunView | None, after: RunView) -> None:
        """Have said what is worth a message; returns at once."""
        for message in what_to_send(before, after, now=self._clock()):
            self._put(_Letter(key, message, time.monotonic()))

    def counts(self) -> dict[str, int]:
        """Return what became of messages, by outcome."""
        with self._condition:
            return dict(self._counts)

    def close(self) -> None:
        """End; what was not sent is not marked as sent, and may be sent by the next server."""
        with self._condition:
            self._is_ended = True
            self._condition.notify_all()
        self._thread.join(self._patience.timeout_s + _ENDING_S)

    def _put(self, letter: _Letter) -> None:
        with self._condition:
            if letter.message.told == "again":
                who = letter.key, letter.message.incident_id
                self._folds.pop(who, None)
                self._folds[who] = letter
            else:
                self._letters.append(letter)
            while len(self._letters) > self._patience.most_waiting:
                self._letters.popleft()
                self._counts["dropped"] += 1
            while len(self._folds) > _MOST_FOLDS:
                del self._folds[next(iter(self._folds))]
                self._counts["dropped"] += 1
            self._condition.notify_all()

    # --- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while (letter := self._next()) is not None:
            try:
                self._deliver(letter)
            except Exception as error:  # By its kind only: its words could hold the address.
                self._count("failed")
                _LOG.warning("a message for the webhook is lost: %s", type(error).__name__)

    def _next(self) -> _Letter | None:
        with self._condition:
            while not self._is_ended:
                if self._letters:
                    return self._letters.popleft()
                now_s = time.monotonic()
                due = {who: self._due_s(who) for who in self._folds}
                who = min(due, key=lambda each: due[each], default=None)
                if who is not None and due[who] <= now_s:
                    self._folded_s = {k: at_s for k, at_s in self._folded_s.items() if self._is_recent(at_s)}
                    return self._folds.pop(who)
                self._condition.wait(None if who is None else due[who] - now_s)
            return None

    def _due_s(self, who: tuple[str, str]) -> float:
        sent_s = self._folded_s.get(who)
        return 0.0 if sent_s is None else sent_s + self._patience.fold_s

    def _is_recent(self, at_s: float) -> bool:
        return time.monotonic() - at_s < self._patience.fold_s

    def _deliver(self, letter: _Letter) -> None:
        message = letter.message
        which = letter.key, message.incident_id, message.mark
        body = self._write(letter)
        if not self._ask(letter, lambda: self._store.mark_sent(*which)):
            return
        is_sent = False
        try:
            is_sent = self._send(letter, body)
        finally:
            if not is_sent:
                self._ask(letter, lambda: self._store.unmark_sent(*which))
        if is_sent and message.told == "again":
            self._folded_s[letter.key, message.incident_id] = time.monotonic()

    def _write(self, letter: _Letter) -> bytes:
        row = self._ask(letter, lambda: self._store.run(letter.key))
        name = row.name if row is not None and row.name else letter.key[:8]
        link = f"{self._page}/runs/{quote(letter.key, safe='')}" if self._page else ""
        return msgspec.json.encode(make_payload(letter.message, run=name, link=link))

    def _ask(self, letter: _Letter, ask: Callable[[], T]) -> T:
        """Ask the store, again and again while it is away and it is not too late for the letter."""
        tries = 0
        while True:
            try:
                return ask()
            except StoreError:
                if self._is_late(letter) or self._wait(self._pause_s(tries)):
                    raise
                tries += 1

    def _send(self, letter: _Letter, body: bytes) -> bool:
        tries = 0
        while True:
            answer = post(self._address, body, timeout_s=self._patience.timeout_s)
            if answer.outcome == "sent":
                self._count("sent")
                self._tell_trouble("")
                return True
            self._tell_trouble(answer.words)
            if answer.outcome == "never" or self._is_late(letter):
                self._count("failed")
                return False
            pause_s = max(answer.wait_s, self._pause_s(tries))
            tries += 1
            if self._wait(pause_s):
                return False

    def _is_late(self, letter: _Letter) -> bool:
        return time.monotonic() - letter.since_s >= self._patience.give_up_s

    def _pause_s(self, tries: int) -> float:
        pauses_s = self._patience.pauses_s
        return pauses_s[min(tries, len(pauses_s) - 1)]

    def _wait(self, pause_s: float) -> bool:
        """Wait, and say whether it is the end."""
        with self._condition:
            return self._condition.wait_for(lambda: self._is_ended, pause_s)

    def _count(self, outcome: str) -> None:
        with self._condition:
            self._counts[outcome] += 1

    def _tell_trouble(self, words: str) -> None:
        """Say once that there is trouble, and once that it is over."""
        if words and not self._is_troubled:
            _LOG.warning("the webhook does not take messages: %s", words)
        if not words and self._is_troubled:
            _LOG.warning("the webhook takes messages again")
        self._is_troubled = bool(words)
