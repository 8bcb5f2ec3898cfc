"""One message on its way, to receivers that fail in all ways."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from receivers import OK, SECRET, Behaviour, Receiver, hold, say, status

from holdfast.errors import InputError
from holdfast.serve.notify.posting import Answer, parse_address, post, read_webhook


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Somebody who takes messages."""
    receiver = Receiver()
    yield receiver
    receiver.close()


def _reset(connection: socket.socket) -> None:
    """Break off without an answer, as a crashed process does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def _drip(connection: socket.socket) -> None:
    """Send one byte of a header now and then, for ever."""
    for _ in range(10_000):
        connection.sendall(b"H")
        time.sleep(0.05)


def test_a_message_arrives(receiver: Receiver) -> None:
    """As JSON, at the path of the address."""
    answer = post(parse_address(f"{receiver.url}?thread=1"), b'{"text":"x"}')
    assert answer == Answer(outcome="sent")
    assert receiver.messages == [{"text": "x"}]
    assert receiver.heads[0].startswith(f"POST {SECRET}?thread=1 HTTP/1.1\r\n".encode())
    assert b"Content-Type: application/json" in receiver.heads[0]


@pytest.mark.parametrize(
    ("behaviour", "outcome", "words"),
    [
        (status(204), "sent", ""),
        (status(500), "later", "it answers 500"),
        (status(408), "later", "it answers 408"),
        (status(404), "never", "it answers 404"),
        (status(403), "never", "it answers 403"),
        (_reset, "later", ""),
        (lambda connection: None, "later", "RemoteDisconnected"),
        (say(b"\x00\xff not http at all\r\n\r\n"), "later", "BadStatusLine"),
        (say(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n"), "later", "HTTPException"),
        (say(b"HTTP/1.1 200 OK\r\n" + b"X" * 100_000), "later", "LineTooLong"),
    ],
)
def test_every_failure_is_an_answer(
    receiver: Receiver, behaviour: Behaviour, outcome: str, words: str
) -> None:
    """And none of them says the address."""
    receiver.become(behaviour)
    answer = post(parse_address(receiver.url), b"{}")
    assert answer.outcome == outcome
    assert words in answer.words
    assert "secret" not in repr(answer)


def test_a_receiver_may_ask_to_wait(receiver: Receiver) -> None:
    """But not for days, and not in riddles."""
    waits = []
    for value in ("7", "9999999", "soon", "-1", "1e9", "9" * 400):
        receiver.become(status(429, f"Retry-After: {value}"))
        waits.append(post(parse_address(receiver.url), b"{}").wait_s)
    assert waits == [7.0, 300.0, 0.0, 0.0, 0.0, 0.0]


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    """What is sent is for one receiver only."""
    other = Receiver()
    try:
        receiver.become(status(307, f"Location: {other.url}"))
        answer = post(parse_address(receiver.url), b"{}")
    finally:
        other.close()
    assert answer == Answer(outcome="never", words="it answers 307, and redirects are not followed")
    assert other.messages == []


def test_who_answers_in_drips_is_cut_off(receiver: Receiver) -> None:
    """Every byte comes in time, and still it ends."""
    receiver.become(_drip)
    started_s = time.monotonic()
    answer = post(parse_address(receiver.url), b"{}", timeout_s=0.5)
    assert answer.outcome == "later"
    assert time.monotonic() - started_s < 15


def test_who_never_answers_is_cut_off(receiver: Receiver) -> None:
    """The connection is taken, and that is all."""
    gone = threading.Event()
    receiver.become(hold(gone))
    answer = post(parse_address(receiver.url), b"{}", timeout_s=0.3)
    gone.set()
    assert answer.outcome == "later"


def test_a_long_answer_is_not_read(receiver: Receiver) -> None:
    """The status is known by then; an endless body costs neither memory nor time."""

    def flood(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while True:  # Until the sender hangs up.
            connection.sendall(b"x" * 65536)

    receiver.become(flood)
    assert post(parse_address(receiver.url), b"{}") == Answer(outcome="sent")


def test_nobody_there() -> None:
    """A port that is free refuses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    answer = post(parse_address(f"http://127.0.0.1:{port}{SECRET}"), b"{}")
    assert answer == Answer(outcome="later", words="it refuses the connection")


def test_tls_is_checked(receiver: Receiver) -> None:
    """Who speaks no TLS where it is expected gets no message."""
    receiver.become(say(OK))
    answer = post(parse_address(receiver.url.replace("http:", "https:")), b"{}", timeout_s=1)
    assert answer.outcome == "later"
    assert receiver.messages == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.org/services/verysecret",
        "file:///etc/verysecret",
        "ftp://hooks.example.org/verysecret",
        "gopher://verysecret",
        "https:///verysecret",
        "https://user:verysecret@hooks.example.org/",
        "https://hooks.example.org/verysecret\r\nX: y",
        "https://hooks.example.org:verysecret/",
        "https://hooks.example.org/very secret",
        "https://[verysecret/",
    ],
)
def test_only_http_addresses_are_taken_and_none_is_repeated(url: str) -> None:
    """A wrong address is still a secret, in the error and in whatever shows its cause."""
    with pytest.raises(InputError) as caught:
        parse_address(url)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "\n" not in str(caught.value)


def test_the_address_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    """The file goes first; nothing at all means that nobody is to be told."""
    file = tmp_path / "webhook"
    file.write_text("https://hooks.example.org/services/a\n")
    env = {"HOLDFAST_WEBHOOK": "https://hooks.example.org/services/b"}
    assert read_webhook(file, env) == "https://hooks.example.org/services/a"
    assert read_webhook(None, env) == "https://hooks.example.org/services/b"
    assert read_webhook(None, {}) is None
    assert read_webhook(None, {"HOLDFAST_WEBHOOK": "  "}) is None


def test_a_file_that_holds_no_address_is_an_error_of_one_line(tmp_path: Path) -> None:
    """It says which file, and not what is in it."""
    file = tmp_path / "webhook"
    for content in (b"", b"verysecret", b"\xff\xfe", os.urandom(10_000)):
        file.write_bytes(content)
        with pytest.raises(InputError) as caught:
            read_webhook(file, {})
        assert str(file) in str(caught.value)
        assert "secret" not in str(caught.value)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_webhook(tmp_path / "none", {})
    with pytest.raises(InputError, match=r"^HOLDFAST_WEBHOOK: "):
        read_webhook(None, {"HOLDFAST_WEBHOOK": "verysecret"})


def test_an_address_does_not_show_itself() -> None:
    """Wherever a value is printed by accident."""
    assert "secret" not in repr(parse_address("https://hooks.example.org/verysecret"))
