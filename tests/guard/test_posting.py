"""Addresses of servers, and tokens."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.guard.posting import Poster, parse_server, token_reader
from holdfast.shipment import Receipt, Run, Shipment
from shipmentserver import serving

EMPTY = Shipment(run=Run(key="k", name="n"), node=0)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://127.0.0.1:8417", ("127.0.0.1", 8417, False, "")),
        ("https://holdfast.example.org/", ("holdfast.example.org", 443, True, "")),
        ("http://here/some/path/", ("here", 80, False, "/some/path")),
        ("https://[::1]:9", ("::1", 9, True, "")),
    ],
)
def test_an_address_has_its_parts(url: str, parts: tuple[str, int, bool, str]) -> None:
    """The port is the usual one where none is given; ours comes after their path."""
    server = parse_server(url)
    assert (server.host, server.port, server.is_encrypted, server.path) == parts


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "ftp://example.org",
        "http://",
        "http://a:b",
        "http://a:99999",
        "http://a/?q=1",
        "http://a/#x",
        "http://a b",
        "http://a\r\nX: y",
        "http://[::1",
        "http://grün.example",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    """In one line that says what is expected."""
    with pytest.raises(InputError, match=r"^server is .*expected such as https://"):
        parse_server(url)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    """It would be in the command line, the run directory and the terminal."""
    with pytest.raises(InputError) as caught:
        parse_server("https://me:hunter2@example.org")
    assert "hunter2" not in str(caught.value)


def test_tokens_come_from_the_file_before_the_environment(tmp_path: Path) -> None:
    """A file that is not there is no token, and may come."""
    file = tmp_path / "token"
    read = token_reader({"HOLDFAST_TOKEN": "from the environment"}, str(file))
    assert read() == ""
    file.write_text("  abc\n")
    assert read() == "abc"
    file.write_bytes(b"\xff\xfe")
    assert read() == ""
    assert token_reader({"HOLDFAST_TOKEN": " abc "}, None)() == "abc"
    assert token_reader({}, None)() == ""


@pytest.mark.parametrize("token", ["sesame\r\nX-Other: b", "sesame open", "sesame\0", "sésame"])
def test_a_token_that_is_no_word_is_not_sent_nor_said(token: str) -> None:
    """Two lines would be two headers; and what was given for a token by mistake may be a secret too."""
    with serving() as server:
        poster = Poster(parse_server(server.url), lambda: token)
        outcome = poster.post(EMPTY)
        assert (outcome.receipt, outcome.failure, server.requests) == (None, "not allowed", 0)
        assert "same" not in outcome.words
        poster.close()


@pytest.mark.parametrize("url", ["http://name.invalid", "https://name.invalid"])
def test_a_name_that_nobody_has_is_a_failure_like_others(url: str) -> None:
    """And so is a file of certificates that is not there."""
    poster = Poster(parse_server(url), lambda: "", ca_file="/nonexistent")
    outcome = poster.post(EMPTY, timeout_s=5.0)
    assert (outcome.receipt, outcome.failure) == (None, "away")
    assert outcome.words
    poster.close()


def test_an_encrypted_server_has_to_be_who_it_says(tmp_path: Path) -> None:
    """By the certificates that the user names; one that nobody vouches for gets nothing, and no token."""
    file = tmp_path / "certificate.pem"
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=here"]
    names = [
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(file),
        "-out",
        str(tmp_path / "own.pem"),
    ]
    subprocess.run(["openssl", "req", *options, *names], cwd=tmp_path, check=True, capture_output=True)
    with file.open("ab") as both:
        both.write((tmp_path / "own.pem").read_bytes())
    with serving(certificate=file) as server:
        poster = Poster(parse_server(server.url), lambda: "t", ca_file=str(tmp_path / "own.pem"))
        assert poster.post(EMPTY).receipt == Receipt(taken=0)
        assert server.tokens == ["Bearer t"]
        poster.close()
        stranger = Poster(parse_server(server.url), lambda: "t")
        outcome = stranger.post(EMPTY)
        assert outcome.failure == "away"
        assert "certificate" in outcome.words.lower()
        assert server.requests == 1
        stranger.close()
