"""What is wrong with the input of ``holdfast plan`` is one line: the flag, or the file and its key."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import cli

SHAPE = ("--dp", "3", "--pp", "4", "--microbatches", "6")
Call = tuple[int, str, str]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the verb with arguments; return exit code, output and errors."""

    def run(*arguments: str) -> Call:
        monkeypatch.setattr(sys, "argv", ["holdfast", "plan", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        code = caught.value.code
        return (code if isinstance(code, int) else 0), out, err

    return run


def _write(tmp_path: Path, text: str) -> str:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return str(file)


BAD_FLAGS = [
    (("--dead", "0.2", "--dead", "1.2", "--dead", "2.2"), "--dead: all 3 workers of stage 2 are dead"),
    (
        ("--dead", "0.2", "--dead", "1.2", "--slow", "2.2=0"),
        "--dead and --slow: all 3 workers of stage 2 are dead",
    ),
    (
        ("--slow", "0.1=1.5"),
        "--slow: the speed of 0.1 is '1.5', expected 0 (dead), or 0.000001 to 1 (healthy)",
    ),
    (("--slow", "0.1=-0.5"), "--slow: the speed of 0.1 is '-0.5', expected"),
    (("--slow", "0.1=nan"), "--slow: the speed of 0.1 is 'nan', expected"),
    (("--slow", "0.1=fast"), "--slow: the speed of 0.1 is 'fast', expected"),
    (("--slow", "0.1=1e-300"), "--slow: the speed of 0.1 is '1e-300', expected"),
    (("--slow", "0.1"), "--slow is '0.1', expected WORKER=SPEED, such as 0.1=0.5"),
    (("--dead", "3.0"), "--dead names the worker 3.0, expected 0.0 to 2.3 (pipeline.stage)"),
    (("--dead", "0.4"), "--dead names the worker 0.4, expected 0.0 to 2.3 (pipeline.stage)"),
    (("--slow", "7.7=0.5"), "--slow names the worker 7.7, expected"),
    (("--dead", "12"), "--dead has '12', expected a worker written pipeline.stage, such as 1.2"),
    (("--dead", "1.2,1.3"), "--dead has '1.2,1.3', expected a worker"),
    (("--dead", "1.2", "--dead", "1.2"), "--dead names the worker 1.2, expected each worker once"),
    (("--dead", "1.2", "--slow", "1.2=0.5"), "--slow names the worker 1.2, expected each worker once"),
    (("--microbatches", "0"), "--microbatches is '0', expected a whole number of 1 or more"),
    (("--dp", "-1"), "--dp is '-1', expected a whole number of 1 or more"),
    (("--pp", "2.5"), "--pp is '2.5', expected a whole number of 1 or more"),
    (("--dp", "three"), "--dp is 'three', expected a whole number of 1 or more"),
    (("--memory", "0"), "--memory is '0', expected a whole number of 1 or more"),
    (("--pp", "513"), "--pp is 513, expected at most 512 stages"),
    (("--memory", "9" * 20), f"--memory is '{'9' * 20}', expected at most 1e+18"),
    (("--slow", "0.1=٣"), "--slow: the speed of 0.1 is '٣', expected"),
    (("--comm", "1_0"), "--comm is '1_0', expected a number"),
    (("--chart", "a\nb.png"), "--chart is 'a\\nb.png', expected a name"),
    (("--fly",), "no such option: --fly"),
    (("extra",), "got unexpected extra argument"),
    (("--memory", "4,3"), "--memory is '4,3', expected one number, or one for each of 4 stages"),
    (("--memory", "4,3,2,0"), "--memory is '4,3,2,0', expected whole numbers from 1 to 1e+18"),
    (("--costs", "1,inf,1"), "--costs is '1,inf,1', expected three numbers F,I,W from 0 to 1e+12"),
    (("--costs", "1,nan,1"), "--costs is '1,nan,1', expected three numbers"),
    (("--costs", "1,-1,1"), "--costs is '1,-1,1', expected three numbers"),
    (("--costs", "1,1"), "--costs is '1,1', expected three numbers"),
    (("--costs", "1,1,x"), "--costs is '1,1,x', expected three numbers"),
    (("--costs", "1,1,1e308"), "--costs is '1,1,1e308', expected three numbers"),
    (("--costs", "0,0,0"), "--costs is '0,0,0', expected three numbers"),
    (("--costs", "4=1,1,1"), "--costs names the stage '4', expected 0 to 3"),
    (("--costs", "-1=1,1,1"), "--costs names the stage '-1', expected 0 to 3"),
    (("--costs", "1=1,1,1", "--costs", "1=2,2,2"), "--costs has stage 1 twice, expected it once"),
    (("--costs", "1,1,1", "--costs", "2,2,2"), "--costs gives the costs of all stages twice"),
    (("--comm", "-1"), "--comm is '-1', expected a number from 0 to 1e+12"),
    (("--comm", "soon"), "--comm is 'soon', expected a number from 0 to 1e+12"),
    (("--mode", "fast"), "--mode is 'fast', expected one of adaptive, naive, decoupled, staggered"),
    (("--state-bytes", "-1"), "--state-bytes is '-1', expected a whole number of 0 or more"),
    (
        ("--dp", "1000", "--microbatches", "1000"),
        "--dp, --pp, --microbatches make 12,000,000 operations (3 x dp x pp x microbatches), expected",
    ),
    (("--chart", "plan.png"), "--chart is 'plan.png', expected a name that ends in .svg or .html"),
    (("--chart", "nowhere/plan.svg"), "--chart is 'nowhere/plan.svg', expected a folder that exists"),
]


def _assert_refused(result: Call, words: str) -> None:
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith(f"holdfast: {words}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("flags", "words"), BAD_FLAGS, ids=lambda value: " ".join(value)[:40])
def test_a_bad_flag_is_one_line_that_names_it(call: Any, flags: tuple[str, ...], words: str) -> None:
    """With its value and what was expected; exit code 2, nothing on stdout."""
    _assert_refused(call(*SHAPE, *flags), words)


@pytest.mark.parametrize("missing", ["dp", "pp", "microbatches"])
def test_the_shape_must_be_given(call: Any, missing: str) -> None:
    """By flag or by file, for each of the three."""
    place = SHAPE.index(f"--{missing}")
    _assert_refused(call(*SHAPE[:place], *SHAPE[place + 2 :]), f"--{missing} is missing, expected")


BAD_FILES = [
    ("dead = [1.2]", 'dead has the number 1.2 as a worker, expected a string such as "1.2": the number 3.10'),
    ("dead = [1]", "dead has the number 1 as a worker, expected a string"),
    ("slow = {0.1 = 0.5}", "slow has the number 0.1 as a worker, expected a string"),
    ('dead = "1.2"', "dead is '1.2', expected a list of workers"),
    ("dead = [[1, 2]]", "dead has [1, 2], expected a worker"),
    ('slow = ["0.1=0.5"]', "slow is ['0.1=0.5'], expected a table of workers and speeds"),
    ('slow = {"0.1" = 2}', "slow: the speed of 0.1 is 2, expected"),
    ('slow = {"0.1" = true}', "slow: the speed of 0.1 is true, expected"),
    ('dead = ["9.9"]', "dead names the worker 9.9, expected 0.0 to 2.3"),
    ("costs = [1, 1]", "costs is [1, 1], expected three numbers"),
    ("costs = [1, 1, inf]", "costs is [1, 1, inf], expected three numbers"),
    ("costs = 1", "costs is 1, expected three numbers"),
    ('costs = {"9" = [1, 1, 1]}', "costs.9 names the stage '9', expected 0 to 3"),
    ('costs = {"1" = [1, 1, true]}', "costs.1 is [1, 1, True], expected three numbers"),
    ("memory = 0", "memory is 0, expected a whole number of 1 or more"),
    ("memory = [1, 2]", "memory is [1, 2], expected one number, or one for each of 4 stages"),
    ("memory = 2.5", "memory is 2.5, expected a whole number"),
    ("comm = nan", "comm is nan, expected a number from 0"),
    ("mode = 3", "mode is 3, expected one of"),
    ("migrate = 1", "migrate is 1, expected true or false"),
    ("speed = 1", "[plan] has no key 'speed', expected one of dp, pp, microbatches, dead"),
    ("state-bytes = -5", "state-bytes is -5, expected a whole number of 0 or more"),
    (f"memory = {'9' * 5000}", "cannot be read: a number has too many digits"),
    (f"memory = 0x{'f' * 9000}", "memory is a value of too many digits to show, expected at most 1e+18"),
    (f"dead = [0x{'f' * 9000}]", "dead has a value of too many digits to show, expected a worker"),
    ("dead = [true]", "dead has true, expected a worker"),
    ('memory = "2"', "memory is '2', expected a whole number"),
    ('costs = "1,1,1"', "costs is '1,1,1', expected three numbers"),
    ('comm = "1"', "comm is '1', expected a number"),
    ('slow = {"0.1" = "0.5"}', "slow: the speed of 0.1 is '0.5', expected"),
    ('costs = {"a\\nb" = [1]}', "costs.a\\nb is [1], expected three numbers"),
    ("dead = ", "cannot be read: Invalid value (at line"),
]


@pytest.mark.parametrize(("line", "words"), BAD_FILES, ids=lambda value: value[:40])
def test_a_bad_file_is_one_line_that_names_file_and_key(
    call: Any, tmp_path: Path, line: str, words: str
) -> None:
    """With its value and what was expected; exit code 2, nothing on stdout."""
    file = _write(tmp_path, f"[plan]\ndp = 3\npp = 4\nmicrobatches = 6\n{line}\n")
    _assert_refused(call("--file", file), f"{file}: {words}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dp = 3\n", "has no table [plan]"),
        ("plan = 3\n", "has no table [plan]"),
        ("[plan]\ndp = true\npp = 1\nmicrobatches = 1\n", "dp is true, expected a whole number"),
        (f"[plan]\ndp = 0x{'f' * 9000}\npp = 1\nmicrobatches = 1\n", "dp is a value of too many digits"),
        ("[plan]\ndp = 10000000\npp = 1\nmicrobatches = 1\n", ""),
    ],
)
def test_a_file_without_a_usable_shape_is_refused(call: Any, tmp_path: Path, text: str, words: str) -> None:
    """The table must be there, with counts that are counts and not too large."""
    file = _write(tmp_path, text)
    _assert_refused(call("--file", file), f"{file}: {words}")


def test_a_file_that_cannot_be_read_is_refused(call: Any, tmp_path: Path) -> None:
    """Missing, a folder, or not text."""
    _assert_refused(call("--file", str(tmp_path / "no.toml")), f"{tmp_path}/no.toml: cannot be read: No such")
    _assert_refused(call("--file", str(tmp_path)), f"{tmp_path}: cannot be read: Is a directory")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    _assert_refused(call("--file", str(binary)), f"{binary}: cannot be read: it is not text")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    _assert_refused(call("--file", str(pipe)), f"{pipe}: cannot be read: expected a regular file")


def test_a_chart_that_cannot_be_written_is_refused(call: Any, tmp_path: Path) -> None:
    """Whether that shows before planning or only afterwards, it is one line."""
    folder = tmp_path / "folder.svg"
    folder.mkdir()
    _assert_refused(call(*SHAPE, "--chart", str(folder)), f"--chart is '{folder}', expected a file, not a")
    long = tmp_path / ("x" * 300 + ".svg")
    _assert_refused(call(*SHAPE, "--chart", str(long)), f"--chart {long}: cannot be written: File name too")
    inside = long / "a.svg"
    _assert_refused(
        call(*SHAPE, "--chart", str(inside)), f"--chart {inside}: cannot be written: File name too"
    )
