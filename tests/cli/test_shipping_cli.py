"""``holdfast ship`` as a person uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from clicalls import call, document
from helpers import EVENTS, STAMP
from holdfast.guard.eventlog import append_line, encode
from shipmentserver import serving


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run of which nothing was sent."""
    folder = tmp_path / "run"
    folder.mkdir()
    for number, event in enumerate(EVENTS):
        stamp = msgspec.structs.replace(STAMP, event_id=str(number))
        append_line(folder / "events.jsonl", encode(stamp, event))
    return folder


def test_a_run_is_sent_once(run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """With the token from the environment; the second time nothing is left."""
    monkeypatch.setenv("HOLDFAST_TOKEN", "t")
    with serving() as server:
        [shipped] = document(["ship", str(run_dir), "--server", server.url], monkeypatch, capsys)
        assert (shipped["lines"], shipped["trouble"]) == (len(EVENTS), "")
        assert len(server.events) == len(EVENTS)
        assert server.tokens == ["Bearer t"]
        assert call(["ship", str(run_dir), "--server", server.url], monkeypatch) == 0
    assert capsys.readouterr().out == f"{run_dir}: 0 lines sent\n"


def test_a_server_that_is_away_is_exit_code_1(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """And one line says why."""
    with serving() as gone:
        url = gone.url
    assert call(["ship", str(run_dir), "--server", url], monkeypatch) == 1
    expected = f"{run_dir}: 0 lines sent; the rest was not sent: Connection refused\n"
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ship", "RUN", "--server", "example.org"], "server is 'example.org', expected such as"),
        (["ship", "nowhere", "--server", "http://127.0.0.1:1"], "nowhere: no events.jsonl in it"),
        (["ship", "RUN"], "missing option '--server'"),
    ],
)
def test_bad_words_get_one_line(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, arguments: list[str], words: str
) -> None:
    """And exit code 2."""
    monkeypatch.chdir(run_dir)
    given = [str(run_dir) if word == "RUN" else word for word in arguments]
    assert call(given, monkeypatch) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
