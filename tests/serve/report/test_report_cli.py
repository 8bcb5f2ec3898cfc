"""``holdfast report``: files written, lines said, and what is refused in one line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clicalls import call, document
from holdfast.incidents.values import RunView
from runstories import eventful, tell, write_run

WHERE = "10.0 s start-up, 2.00 s stood still, 13.0 s lost to slow steps"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was slow, lost a rank and came to its end."""
    return write_run(tmp_path / "20261115-194000-demo", *eventful())


def test_both_files_are_written_and_five_lines_said(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second time, they are written anew."""
    for _ in range(2):
        assert call(["report", str(run)], monkeypatch) == 0
        out, err = capsys.readouterr()
        assert (out.splitlines(), err) == (
            [
                "20261115-194000-demo: ended well after 3.3 min",
                "2 incidents (1 death, 1 slow job)",
                "lost 15.0 s (0.017 GPU-h), 500 ms of them for what was done; saved 16.0 s (0.018 GPU-h)",
                f"ETTR 87.5% at most: of 3.3 min, {WHERE}",
                "not known: no log and no traceback of rank 3, which died",
                f"written: {run}/report.html",
                f"written: {run}/report.md",
            ],
            "",
        )
    assert (run / "report.html").read_text().startswith("<!doctype html>")
    assert sorted(path.name for path in run.glob("*report*")) == ["report.html", "report.md"]


@pytest.mark.parametrize("name", ["out.html", "out.md"])
def test_one_file_is_written_where_it_is_wanted(
    run: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form follows the name, and the run directory stays as it was."""
    before = sorted(run.iterdir())
    out = run.parent / name
    assert call(["report", str(run), "--out", str(out)], monkeypatch) == 0
    assert out.read_text().startswith("<!doctype" if name.endswith("html") else "<!-- holdfast report -->")
    assert sorted(run.iterdir()) == before


def test_a_file_that_is_no_report_stays_unless_forced(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also not the other of the two files is written then."""
    notes = run / "report.md"
    notes.write_text("# my notes\n")
    assert call(["report", str(run)], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no report of holdfast" in err
    assert notes.read_text() == "# my notes\n"
    assert not (run / "report.html").exists()
    assert call(["report", str(run), "--force"], monkeypatch) == 0
    assert notes.read_text() != "# my notes\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["empty"], "no events.jsonl in it, expected a run directory"),
        (["nowhere"], "no such folder, expected a run directory"),
        (["run", "--out", "report.pdf"], "expected a name that ends in .html or .md"),
        (["run", "--out", "nowhere/report.md"], "expected a folder that exists"),
    ],
)
def test_what_cannot_be_told_is_one_line(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With exit code 2, and nothing on stdout."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", *eventful())
    (tmp_path / "empty").mkdir()
    assert call(["report", *words], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_json_is_one_document_and_writes_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The run as every other view shows it, and what each source held."""
    before = sorted(run.iterdir())
    found = document(["report", str(run)], monkeypatch, capsys)
    view = msgspec.convert(found["run"], RunView)
    assert [incident.kind for incident in view.incidents] == ["slow", "death"]
    assert (found["schema"], found["times"]["ettr"]) == (1, 0.875)
    assert found["sources"]["events"]["records"] == len(eventful()[0])
    assert found["sources"]["last_words"][0]["death"]["rank"] == 3
    assert found["not_known"] == ["no log and no traceback of rank 3, which died"]
    assert sorted(run.iterdir()) == before


def said_of(run: Path, pid: int, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    """Return what is said of a run that has not ended, whose launcher is a process of this machine."""
    about = msgspec.json.decode((run / "run.json").read_bytes())
    about |= {"host": socket.gethostname(), "launcher_pid": pid}
    (run / "run.json").write_bytes(msgspec.json.encode(about))
    assert call(["report", str(run)], monkeypatch) == 0
    return str(capsys.readouterr().out)


def test_a_run_that_goes_on_is_told_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Its launcher lives."""
    run = write_run(tmp_path / "run", eventful()[0][:9])
    said = said_of(run, os.getpid(), monkeypatch, capsys)
    assert said.startswith("run: is slow, 80.1 s after its start\n1 incident (1 slow job), 1 not over\n")
    assert "not known: the run still goes on: this is how it is now" in said


@pytest.mark.processes
def test_a_run_whose_launcher_is_gone_without_a_word_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """It was killed, and so was its guard."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    run = write_run(tmp_path / "run", eventful()[0][:9])
    said = said_of(run, gone.pid, monkeypatch, capsys)
    assert said.startswith(
        "run: its launcher is gone without a word; after 80.1 s it was last seen so: it is slow\n"
    )


def test_two_nodes_are_one_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Events of both stand in the order of their times, and that these are of two clocks is told."""
    records, rows = eventful()
    other = [tell(0.5, records[0].event, node=1), tell(200.5, records[-1].event, node=1)]
    run = write_run(tmp_path / "run", [*records, *other], rows)
    assert call(["report", str(run)], monkeypatch) == 0
    assert "clocks of 2 nodes" in capsys.readouterr().out
    events = (run / "report.md").read_text().partition("## All events")[2].splitlines()
    assert "| 1 | 0 | launcher started |" in events[5]
    assert "| 1 | 0 | run ended: succeeded |" in events[-1]
