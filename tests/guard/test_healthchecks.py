"""Health checks: any command with the exit codes of Nagios becomes a row, and a broken one says nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import InputError
from holdfast.guard.healthchecks import (
    CRITICAL,
    OK,
    UNKNOWN,
    WARNING,
    Book,
    Cadence,
    Check,
    Row,
    keep_checking,
    read_checks,
    run_check,
    worst,
)
from holdfast.guard.nodechecks import main

pytestmark = pytest.mark.processes


def _ran(*command: str, timeout_s: float = 20.0) -> Row:
    check = Check(name="it", command=list(command), timeout_s=timeout_s)
    return run_check(check, node="n1", moment="prolog", job="7")


@pytest.mark.parametrize(
    ("code", "result"), [(0, OK), (1, WARNING), (2, CRITICAL), (3, UNKNOWN), (9, UNKNOWN), (-9, UNKNOWN)]
)
def test_the_exit_code_is_the_result(code: int, result: int) -> None:
    """Also that of a check which is killed: that is nothing about the node."""
    script = f"kill {code} $$" if code < 0 else f"echo said; exit {code}"
    row = _ran("sh", "-c", script)
    assert (row.result, row.node, row.type, row.job_id, row.health_check) == (
        result,
        "n1",
        "prolog",
        "7",
        "it",
    )
    assert code < 0 or row.msg == "said"


def test_a_check_that_cannot_be_started_is_unknown() -> None:
    """With the reason."""
    row = _ran("/no/such/program")
    assert row.result == UNKNOWN
    assert "No such file" in row.msg


def test_a_check_that_hangs_is_ended_with_all_that_it_started() -> None:
    """It is unknown what it would have said."""
    row = _ran("sh", "-c", "sleep 1234.5 & sleep 1234.5", timeout_s=0.3)
    assert (row.result, row.msg) == (UNKNOWN, "took longer than 0.3 s")
    left = subprocess.run(["pgrep", "-f", "sleep 1234.5"], capture_output=True, check=False).stdout
    assert left == b""


def test_a_flood_of_words_is_cut() -> None:
    """A row stays a row."""
    assert len(_ran("sh", "-c", "yes | head -c 100000; exit 1").msg) == 500


def test_the_worst_of_several_is_what_a_prolog_exits_with() -> None:
    """What is not known is less than a warning."""
    rows = {code: _ran("sh", "-c", f"exit {code}") for code in range(4)}
    assert worst([]) == OK
    assert worst([rows[0], rows[3]]) == UNKNOWN
    assert worst([rows[3], rows[1]]) == WARNING
    assert worst([rows[1], rows[2], rows[3]]) == CRITICAL


def test_checks_run_by_their_cadence_and_leave_rows(tmp_path: Path) -> None:
    """Each at once and then by its own beat, appended to what is there."""
    out = tmp_path / "checks.jsonl"
    book = Book(out, pytest.fail)
    book.append([_ran("true")])
    checks = [
        Check(name="often", command=["true"], every_s=0.2),
        Check(name="seldom", command=["false"], every_s=60.0),
    ]
    keep_checking(checks, book, node="n2", until_s=time.monotonic() + 1.0)
    rows = [msgspec.json.decode(line, type=Row) for line in out.read_bytes().splitlines()]
    names = [row.health_check for row in rows]
    assert names[0] == "it"
    assert names.count("seldom") == 1
    assert names.count("often") >= 2
    assert all(row.start_time <= row.end_time <= datetime.now(UTC) for row in rows)


def test_what_was_missed_is_not_made_up_for() -> None:
    """After a pause of an hour a check of five minutes is due once."""
    cadence = Cadence([Check(name="it", command=["true"], every_s=300.0)], 0.0)
    assert len(cadence.take_due(0.0)) == 1
    assert cadence.take_due(299.0) == []
    assert len(cadence.take_due(3700.0)) == 1
    assert cadence.take_due(3800.0) == []
    assert cadence.next_s == 3900.0


def test_a_file_of_checks_is_read(tmp_path: Path) -> None:
    """With defaults for what it does not say."""
    path = tmp_path / "checks.toml"
    path.write_text('[[check]]\nname = "disk"\ncommand = ["df"]\nwhen = ["prolog", "periodic"]\n')
    (check,) = read_checks(path)
    assert (check.name, check.command, check.every_s, check.when) == (
        "disk",
        ["df"],
        300.0,
        ("prolog", "periodic"),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[check]]\nname = 1\n", "[[check]]"),
        ("[[check]]\nname = 'a'\ncommand = []\n", "expected a command"),
        ("[[check]]\nname = 'a'\ncommand = ['x']\nevery_s = 0\n", "positive times"),
        ("[[check]]\nname = 'a'\ncommand = ['x']\nwhen = ['noon']\n", "noon"),
        ("[[check]]\nname = 'a'\ncommand = ['x']\n" * 2, "two checks are called 'a'"),
        ("[[check]\n", "cannot be read"),
    ],
)
def test_a_bad_file_of_checks_is_refused_in_one_line(tmp_path: Path, text: str, expected: str) -> None:
    """With the file's name and what was expected."""
    path = tmp_path / "checks.toml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_checks(path)
    assert str(path) in str(refused.value)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_checks_of_our_own_tell_the_state_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can be known here: a folder is no mount, /proc is one, and no machine has an exabyte."""
    assert main(["mount", "--path", "/proc"]) == OK
    assert main(["mount", "--path", str(tmp_path)]) == CRITICAL
    assert main(["memory", "--least-gb", "1e9"]) == CRITICAL
    assert main(["memory", "--warn", "0", "--critical", "0"]) == OK
    assert main(["disk", "--path", str(tmp_path), "--warn", "101", "--critical", "101"]) == OK
    assert main(["disk", "--path", str(tmp_path), "--warn", "0", "--critical", "0"]) == CRITICAL
    assert main(["disk", "--path", str(tmp_path / "gone")]) == CRITICAL
    assert main(["clock"]) in (OK, WARNING, CRITICAL, UNKNOWN)
    assert len(capsys.readouterr().out.splitlines()) == 8


def test_an_old_zombie_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    """By its name; a young one is nobody's business yet."""
    parent = subprocess.Popen(
        [sys.executable, "-c", "import os,time\nif os.fork(): print(1, flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE,
    )
    try:
        assert parent.stdout is not None
        parent.stdout.readline()
        time.sleep(0.3)
        assert main(["processes", "--stuck-after-s", "0.1"]) in (WARNING, CRITICAL)
        assert main(["processes", "--stuck-after-s", "1e9"]) == OK
        assert "python" in capsys.readouterr().out
    finally:
        parent.kill()
        parent.communicate()


def test_a_full_disk_is_said_once_and_the_checks_go_on(small_disk: Path) -> None:
    """Nothing is raised; and a row that was cut short does not take the next one with it."""
    said: list[str] = []
    out = small_disk / "checks.jsonl"
    book = Book(out, said.append)
    wordy = _ran("sh", "-c", "yes | head -c 400")
    for _ in range(40):
        book.append([wordy])
    assert len(said) == 1
    assert "cannot be written: No space left on device" in said[0]
    whole = out.read_bytes()[: 3 * len(msgspec.json.encode(wordy)) + 20]
    out.write_bytes(whole)
    book.append([_ran("true")])
    lines = out.read_bytes().splitlines()
    assert msgspec.json.decode(lines[-1], type=Row).health_check == "it"
    assert len(said) == 1


def test_what_cannot_be_logged_does_not_make_a_node_bad(tmp_path: Path) -> None:
    """The exit code stays that of the checks: a prolog's 2 would drain the node."""
    (tmp_path / "checks.toml").write_text('[[check]]\nname = "a"\ncommand = ["true"]\nwhen = ["prolog"]\n')
    command = [
        sys.executable,
        "-m",
        "holdfast.cli",
        "reliability",
        "check",
        "checks.toml",
        "--when",
        "prolog",
    ]
    done = subprocess.run(
        [*command, "--out", "gone/rows.jsonl"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ok: a: \n")
    assert done.stderr == (
        "holdfast: gone/rows.jsonl: cannot be written: No such file or directory; the checks go on\n"
    )
