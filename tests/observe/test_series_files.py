"""Files that are no good table of step times, each met with one clear line."""

from __future__ import annotations

import os
from pathlib import Path

import polars
import pytest

from helpers import run_python
from holdfast.errors import InputError
from holdfast.observe.series import read_series
from holdfast.telemetry import StepTime


def refuse(path: Path) -> str:
    """Return the one line with which a file is refused, without its name."""
    with pytest.raises(InputError) as caught:
        read_series(path)
    said = str(caught.value)
    assert said.startswith(str(path))
    assert "\n" not in said
    return said.removeprefix(str(path))


def write(folder: Path, content: str, name: str = "steps.csv") -> Path:
    """Write a file and return where it is."""
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A folder, a pipe, a device, a name that leads nowhere."""
    os.mkfifo(tmp_path / "pipe.csv")
    assert refuse(tmp_path) == ": cannot be read: Is a directory"
    for path in (tmp_path / "pipe.csv", Path(os.devnull)):
        assert refuse(path) == ": cannot be read: expected a regular file"
    assert refuse(tmp_path / "none.csv") == ": cannot be read: No such file or directory"
    assert refuse(tmp_path / "none.parquet").startswith(": cannot be read: No such file")
    assert refuse(tmp_path / ("x" * 300)) == ": cannot be read: File name too long"
    assert refuse(write(tmp_path, "x") / "below") == ": cannot be read: Not a directory"


READ = """
import os, signal, sys
from pathlib import Path
import polars
from holdfast.errors import InputError
from holdfast.observe.series import read_series
if os.geteuid() == 0:
    os.seteuid(65534)
signal.alarm(3)
try:
    read_series(Path(sys.argv[1]))
except InputError as error:
    print(error)
"""
"""Reads a file of the folder that it runs in, never as root, who may read everything; who waits is ended."""


@pytest.mark.processes
@pytest.mark.parametrize("name", ["steps.csv", "steps.parquet"])
def test_a_file_without_permission_is_refused(name: str, tmp_path: Path) -> None:
    """With the words of the operating system."""
    tmp_path.chmod(0o755)
    write(tmp_path, "step,duration_s\n1,1\n", name).chmod(0)
    done = run_python("-c", READ, name, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Permission denied" in done.stdout
    assert done.stdout.count("\n") == 1


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    """Cut off anywhere, empty, or no Parquet at all."""
    path = tmp_path / "steps.parquet"
    polars.DataFrame({"step": [1, 2], "duration_s": [1.0, 2.0]}).write_parquet(path)
    whole = path.read_bytes()
    for cut in (0, 4, 11, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert refuse(path).startswith(": cannot be read as Parquet: ")
    path.write_bytes(b"PAR1" + b"\xff" * 40 + b"PAR1")
    assert refuse(path).startswith(": cannot be read as Parquet: ")


def test_bad_cells_of_a_parquet_table_are_refused_with_their_row(tmp_path: Path) -> None:
    """Rows are counted from 1, as there is no header line."""
    path = tmp_path / "steps.parquet"
    polars.DataFrame({"step": [1, 2], "duration_s": [1.0, None]}).write_parquet(path)
    assert refuse(path) == ", row 2: duration_s is empty, expected a number"
    polars.DataFrame({"step": [1, 2], "duration_s": [float("nan"), 1.0]}).write_parquet(path)
    assert refuse(path) == ", row 1: duration_s is nan, expected a finite number"
    polars.DataFrame({"step": [], "duration_s": []}).write_parquet(path)
    assert refuse(path) == ": it has no rows, expected step times"


# --- what once went wrong ---------------------------------------------------------------------


def test_a_whole_number_that_is_no_float_is_refused(tmp_path: Path) -> None:
    """JSON has whole numbers of any length."""
    content = '{"step": 1, "duration_s": 1' + "0" * 400 + "}\n"
    assert refuse(write(tmp_path, content, "steps.jsonl")).startswith(", row 1: duration_s is")


def test_a_step_that_nobody_can_count_is_refused(tmp_path: Path) -> None:
    """It does not fit into 64 bits."""
    assert ", row 2: step is" in refuse(write(tmp_path, "step,duration_s\n1e20,1\n"))


def test_large_steps_keep_their_last_digit(tmp_path: Path) -> None:
    """Above 2^53 two steps in a row are two steps."""
    path = write(tmp_path, "step,duration_s\n9007199254740992,1\n9007199254740993,1\n")
    assert [each.step for each in read_series(path)[0]] == [2**53, 2**53 + 1]


def test_a_time_that_vanishes_in_seconds_is_refused(tmp_path: Path) -> None:
    """A time is more than 0 after its unit was applied, too."""
    assert refuse(write(tmp_path, "step,duration_ms\n1,1e-323\n")).startswith(", row 2: ")


def test_a_line_separator_inside_a_json_string_ends_no_line(tmp_path: Path) -> None:
    """U+2028 and U+0085 may stand in a string as they are."""
    path = write(tmp_path, '{"step": 1, "duration_s": 0.5, "note": "a\u2028b\u0085c"}\n', "steps.jsonl")
    assert read_series(path) == [[StepTime(step=1, duration_s=0.5)]]


@pytest.mark.parametrize("content", [",step,duration_s\n0,1,0.5\n", "step,duration_s,\n1,0.5,\n"])
def test_a_column_without_a_name_is_passed_over(content: str, tmp_path: Path) -> None:
    """A pandas index has none, and many programs end every line with a comma."""
    assert read_series(write(tmp_path, content)) == [[StepTime(step=1, duration_s=0.5)]]


def test_empty_lines_above_the_header_are_passed_over(tmp_path: Path) -> None:
    """As those below it are."""
    path = write(tmp_path, "\n\nstep,duration_s\n1,0.5\n")
    assert read_series(path) == [[StepTime(step=1, duration_s=0.5)]]


def test_a_csv_with_a_log_line_in_a_cell_is_a_csv(tmp_path: Path) -> None:
    """Its first line has the columns."""
    path = write(tmp_path, 'step,duration_s,note\n1,0.5,"step: 9  loss tps: 100"\n')
    assert read_series(path) == [[StepTime(step=1, duration_s=0.5)]]


def test_an_attempt_that_comes_back_is_not_two(tmp_path: Path) -> None:
    """Rows of two attempts in turns are refused, or put together."""
    path = write(tmp_path, "attempt,step,duration_s\n1,5,1\n2,1,1\n1,6,1\n2,2,1\n")
    try:
        series = read_series(path)
    except InputError:
        return
    assert [[each.step for each in attempt] for attempt in series] == [[5, 6], [1, 2]]


def test_a_parquet_file_is_read_by_its_very_name(tmp_path: Path) -> None:
    """Brackets and asterisks are parts of a name."""
    polars.DataFrame({"step": [1], "duration_s": [0.5]}).write_parquet(tmp_path / "a1.parquet")
    assert refuse(tmp_path / "a*.parquet")


def test_a_folder_of_parquet_files_is_refused(tmp_path: Path) -> None:
    """As every folder is."""
    folder = tmp_path / "steps.parquet"
    folder.mkdir()
    polars.DataFrame({"step": [1], "duration_s": [0.5]}).write_parquet(folder / "a.parquet")
    assert refuse(folder) == ": cannot be read: Is a directory"


@pytest.mark.processes
def test_a_pipe_called_parquet_is_refused(tmp_path: Path) -> None:
    """Nobody waits for a pipe that may never be written."""
    tmp_path.chmod(0o755)
    os.mkfifo(tmp_path / "pipe.parquet", 0o666)
    done = run_python("-c", READ, "pipe.parquet", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "pipe.parquet: cannot be read: expected a regular file\n")


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """Nobody can say which of them was meant; several without a name are left alone."""
    path = write(tmp_path, "step,step,duration_s\n1,2,0.5\n", "twice.csv")
    assert refuse(path) == ": two columns are called 'step', expected one"
    assert len(read_series(write(tmp_path, "step,,,duration_s\n1,,,0.5\n", "blank.csv"))[0]) == 1
