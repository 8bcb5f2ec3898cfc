"""What lies in a run directory, whole or broken."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from helpers import make_death
from holdfast.errors import InputError
from holdfast.serve.report import runfiles
from holdfast.serve.report.gaps import find_gaps
from holdfast.serve.report.runfiles import read_files
from holdfast.serve.report.tale import make_tale
from holdfast.values import WorkerDied
from runstories import START, died, eventful, started, tell, write_run


def gaps(folder: Path) -> list[str]:
    """Return what is not known of a run."""
    return find_gaps(make_tale(read_files(folder), is_alive=False))


def test_a_whole_run_directory_has_no_gap_but_the_silence_of_the_dead(tmp_path: Path) -> None:
    """A worker that was killed leaves nothing, and that is told."""
    assert gaps(write_run(tmp_path, *eventful())) == ["no log and no traceback of rank 3, which died"]


def test_a_folder_without_an_event_log_is_refused(tmp_path: Path) -> None:
    """In one line that says what was expected; so is one that is not there."""
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="expected a run directory"):
            read_files(folder)


@pytest.mark.parametrize("name", ["run.json", "summaries.jsonl", "events.node1.jsonl"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    """Nobody may ever write into it."""
    folder = write_run(tmp_path, *eventful())
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match=f"{name}: no regular file"):
        read_files(folder)


def test_cut_and_broken_lines_are_told(tmp_path: Path) -> None:
    """Of the event log and of the summaries."""
    folder = write_run(tmp_path, *eventful())
    for name in ("events.jsonl", "summaries.jsonl"):
        with (folder / name).open("ab") as log:
            log.write(b'{"schema": 1}\n\xff\xfe\n{"schema"')
    found = gaps(folder)
    assert "event logs with a last line that is cut: 1" in found
    assert sum(line.startswith("a line of the event log is broken: events.jsonl:") for line in found) == 2
    assert "summaries.jsonl: 2 broken lines, 1 cut" in found


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    """Neither run.json, nor summaries, nor an end, nor the log of the second node."""
    folder = write_run(tmp_path, [tell(0, START), tell(1, started(0, 1, nodes=2))])
    (folder / "run.json").unlink()
    (folder / "summaries.jsonl").unlink()
    found = "\n".join(gaps(folder))
    assert "there is no run.json" in found
    assert "there is no summaries.jsonl" in found
    assert "its launcher does not live any more" in found
    assert "the run had 2 nodes, and there are event logs of 1" in found


def test_a_run_json_that_is_none_is_told(tmp_path: Path) -> None:
    """The rest is read all the same."""
    folder = write_run(tmp_path, *eventful())
    (folder / "run.json").write_text('{"settings": 7}')
    assert any(line.startswith("run.json cannot be read: ") for line in gaps(folder))


def test_the_last_lines_of_a_long_log_are_kept(tmp_path: Path) -> None:
    """And no line of which only the end was read."""
    folder = write_run(tmp_path, [tell(0, START), tell(1, started(0)), tell(2, died(0))])
    log = folder / "logs" / "attempt_0" / "rank_0.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"".join(b"line %d " % number + b"\xff" * 500 + b"\n" for number in range(1000)))
    (words,) = read_files(folder).words
    assert words.log == "logs/attempt_0/rank_0.log"
    assert words.lines[-1].startswith("line 999 ")
    assert words.lines[0].startswith("line ")
    assert len(words.lines) <= runfiles.LOG_LINES
    assert sum(map(len, words.lines)) <= runfiles.LOG_BYTES


def test_a_log_that_never_ends_is_not_read(tmp_path: Path) -> None:
    """A pipe in the place of a log would hold the report for ever."""
    folder = write_run(tmp_path, [tell(0, START), tell(1, started(0)), tell(2, died(0))])
    (folder / "logs" / "attempt_0").mkdir(parents=True)
    os.mkfifo(folder / "logs" / "attempt_0" / "rank_0.log")
    assert read_files(folder).words[0].lines == []


def test_a_traceback_is_taken_from_the_event_or_else_from_the_error_file(tmp_path: Path) -> None:
    """A broken error file is none."""
    told = WorkerDied(death=make_death(rank=2, traceback="Traceback:\n  from the event"))
    folder = write_run(tmp_path, [tell(1, died(0)), tell(2, died(1)), tell(3, told)])
    errors = folder / "errors" / "attempt_0"
    errors.mkdir(parents=True)
    message = {"message": {"message": "x", "extraInfo": {"py_callstack": "Traceback:\n  from the file"}}}
    (errors / "rank_0.json").write_text(json.dumps(message))
    (errors / "rank_1.json").write_text('{"message": "x"}')
    found = [words.traceback[-1:] for words in read_files(folder).words]
    assert found == [["  from the file"], [], ["  from the event"]]


def test_of_many_deaths_the_first_are_shown(tmp_path: Path) -> None:
    """And how many there were is told."""
    count = runfiles.MOST_DEATHS + 3
    folder = write_run(tmp_path, [tell(number, died(number)) for number in range(count)])
    files = read_files(folder)
    assert len(files.words) == runfiles.MOST_DEATHS
    assert f"last words of {runfiles.MOST_DEATHS} of {count} workers that died are shown" in files.unread


def test_profiles_and_dumps_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    """They do not take the rest of the report with them."""
    folder = write_run(tmp_path, *eventful())
    (folder / "profiles" / "ab").mkdir(parents=True)
    (folder / "profiles" / "ab" / "job.json").write_text("{}")
    (folder / "flight_recorder").mkdir()
    (folder / "flight_recorder" / "_dump_0").write_bytes(b"no dump")
    found = "\n".join(gaps(folder))
    assert "profiles/ab: the profile cannot be read" in found
    assert "the Flight Recorder's dumps cannot be read" in found


def test_of_very_long_summaries_every_so_many_rows_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first second to the last, and it is told."""
    folder = write_run(tmp_path, *eventful())
    size = (folder / "summaries.jsonl").stat().st_size
    monkeypatch.setattr(runfiles, "LARGEST_SUMMARIES", size // 4)
    files = read_files(folder)
    whole = len(eventful()[1])
    assert whole // 5 <= len(files.rows) <= whole // 4
    assert files.rows[0] == eventful()[1][0]
    assert any("one row in" in line for line in files.unread)
