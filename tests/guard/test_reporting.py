"""How guards are told where to report."""

from __future__ import annotations

import argparse
import socket

import pytest

from holdfast.guard import reporting
from holdfast.guard.reporting import TOKEN_ENV, Meeting, Reporting, accept, add_flags, read_flags


def _read(flags: list[str], env: dict[str, str]) -> Reporting | None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return read_flags(parser.parse_args(flags), env)


@pytest.mark.parametrize(
    "told",
    [
        Reporting(token="t", listen_fd=7),
        Reporting(token="t", ship_to="node0:4711"),
        Reporting(token="t", ship_to="[fe80::1]:4711", attempts_behind=-2),
    ],
)
def test_a_guard_reads_what_its_launcher_wrote(told: Reporting) -> None:
    """The token comes by the environment, is not on the command line, and does not stay."""
    env = {TOKEN_ENV: told.token, "OTHER": "x"}
    assert _read(told.flags(), env) == told
    assert env == {"OTHER": "x"}
    assert told.token not in told.flags()


@pytest.mark.parametrize(
    ("flags", "env"),
    [([], {}), ([], {TOKEN_ENV: "t"}), (["--ship-to", "a:1"], {}), (["--listen-fd", "3"], {TOKEN_ENV: ""})],
)
def test_a_guard_that_is_not_told_everything_is_told_nothing(flags: list[str], env: dict[str, str]) -> None:
    """Then it judges alone."""
    assert _read(flags, env) is None


def test_node_0_listens_where_its_word_says() -> None:
    """The same socket and the same token in every attempt."""
    meeting = Meeting()
    words = [meeting.invite("127.0.0.1", attempt=attempt) for attempt in (0, 3)]
    mine = meeting.host()
    theirs = [accept(word, attempt=attempt) for word, attempt in zip(words, (0, 1), strict=True)]
    assert mine is not None
    assert mine.listen_fd is not None
    assert [each.attempts_behind for each in theirs if each is not None] == [0, 2]
    for each in theirs:
        assert each is not None
        assert each.token == mine.token
        host, _, port = each.ship_to.rpartition(":")
        socket.create_connection((host, int(port)), timeout=20).close()
    assert meeting.host() == mine
    meeting.close()
    assert meeting.host() is None


def test_two_meetings_have_two_tokens() -> None:
    """Nobody can guess one from another."""
    words = []
    for meeting in (Meeting(), Meeting()):
        words.append(meeting.invite("a", attempt=0).split()[1])
        meeting.close()
    assert words[0] != words[1]
    assert min(map(len, words)) >= 32


def test_where_node_0_cannot_listen_every_node_judges_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its word is empty, and so is what the guards are told."""

    def refuse(*, is_local: bool) -> socket.socket:
        raise OSError("no port is left")

    monkeypatch.setattr(reporting, "listen", refuse)
    meeting = Meeting()
    word = meeting.invite("a", attempt=0)
    assert (word, meeting.host(), accept(word, attempt=0)) == ("", None, None)
