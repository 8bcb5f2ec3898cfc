"""What is said, is said in whole lines, each topic once."""

from __future__ import annotations

import os
import threading

from helpers import Ears
from holdfast.guard.say import Say, write_all


def test_lines_begin_with_our_name_and_topics_come_once(ears: Ears) -> None:
    """The second word on a topic is swallowed, whatever its text."""
    ears.say.line("hello")
    ears.say.once("disk", "full")
    ears.say.once("disk", "still full")
    ears.say.once("net", "gone")
    ears.say.raw("as it is\n")
    assert ears.lines() == ["holdfast: hello", "holdfast: full", "holdfast: gone", "as it is"]


def test_nobody_listening_is_no_error() -> None:
    """A closed pipe ends in silence."""
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    tried: list[bytes] = []

    def put(fd: int, data: bytes) -> None:
        tried.append(data)
        write_all(fd, data)

    Say(write_fd, put).line("hello")
    os.close(write_fd)
    Say(write_fd, put).line("hello")
    assert tried == [b"holdfast: hello\n"] * 2


def test_text_that_is_no_unicode_is_said_as_well_as_can_be(ears: Ears) -> None:
    """File names may hold any byte."""
    ears.say.line("file \udcff")
    assert ears.lines() == ["holdfast: file ?"]


def test_threads_say_a_topic_once_and_lines_stay_whole(ears: Ears) -> None:
    """However many speak at once."""

    def speak(number: int) -> None:
        for _ in range(50):
            ears.say.once("topic", "once")
            ears.say.line("x" * 100 + str(number))

    threads = [threading.Thread(target=speak, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = ears.lines()
    assert said.count("holdfast: once") == 1
    assert sorted(said) == sorted(
        ["holdfast: once"] + [f"holdfast: {'x' * 100}{number}" for number in range(4) for _ in range(50)]
    )


def test_a_terminal_that_does_not_block_gets_whole_lines() -> None:
    """Some parents leave the descriptor non-blocking; what does not fit at once is not to be cut off."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    heard: list[bytes] = []

    def listen() -> None:
        while data := os.read(read_fd, 4096):
            heard.append(data)

    os.write(write_fd, b"." * 60_000)  # Little room is left when it begins to speak.
    speaker = threading.Thread(target=Say(write_fd).raw, args=("x" * 200_000,))
    listener = threading.Thread(target=listen)
    speaker.start()
    listener.start()
    speaker.join()
    os.close(write_fd)
    listener.join()
    os.close(read_fd)
    assert b"".join(heard).count(b"x") == 200_000
