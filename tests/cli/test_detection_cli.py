"""``holdfast detect`` as a person calls it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import sysconfig
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import holdfast
from helpers import run_python
from holdfast import cli
from stepseries import levels

TIMES = levels((100, 1.0), (60, 1.5), (60, 1.0))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all packages of this environment but torch and polars."""
    folder = tmp_path_factory.mktemp("bare")
    for package in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if (
            not package.name.startswith(("torch", "functorch", "polars", "_polars"))
            and package.suffix != ".pth"
        ):
            (folder / package.name).symlink_to(package)
    return folder


def detect(cwd: Path, *arguments: str, bare: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Call the verb; with a folder of packages, with those alone."""
    if bare is None:
        return run_python("-m", "holdfast.cli", "detect", *arguments, cwd=cwd)
    path = os.pathsep.join([str(Path(holdfast.__file__).parent.parent), str(bare)])
    return run_python("-S", "-m", "holdfast.cli", "detect", *arguments, cwd=cwd, env={"PYTHONPATH": path})


def call(*arguments: str) -> tuple[int, str, str]:
    """Call the verb within this process, here; return its exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["holdfast", "detect", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
    assert isinstance(caught.value.code, int)
    return caught.value.code, out.getvalue(), err.getvalue()


def document(*arguments: str) -> dict[str, Any]:
    """Return the JSON that the verb answers with."""
    code, out, err = call(*arguments, "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    answer: dict[str, Any] = json.loads(out)
    return answer


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that tests run in, with a series that was slow once, in some formats."""
    monkeypatch.chdir(tmp_path)
    rows = list(enumerate(TIMES.tolist(), start=1))
    (tmp_path / "steps.csv").write_text("step,duration_s\n" + "".join(f"{s},{t}\n" for s, t in rows))
    twice = "".join(f"{attempt},{s},{t}\n" for attempt in (1, 2) for s, t in rows)
    (tmp_path / "twice.csv").write_text("attempt,step,duration_s\n" + twice)
    (tmp_path / "ms.jsonl").write_text("".join(f'{{"n": {s}, "train/time": {1e3 * t}}}\n' for s, t in rows))
    (tmp_path / "steps.parquet").write_bytes(b"PAR1")
    return tmp_path


def test_json_has_exactly_the_promised_keys(folder: Path) -> None:
    """For changes, episodes and attempts."""
    answer = document("steps.csv")
    assert list(answer) == ["change_points", "episodes", "healthy_s", "attempts"]
    assert [each["direction"] for each in answer["change_points"]] == ["slow", "relief"]
    for change in answer["change_points"]:
        assert set(change) == {
            "step",
            "detected_step",
            "before_s",
            "after_s",
            "direction",
            "is_slow",
            "confidence",
            "attempt",
        }
    (episode,) = answer["episodes"]
    assert set(episode) == {"start", "end", "slowdown", "attempt"}
    assert (episode["start"], episode["end"]) == (101, 161)
    assert episode["slowdown"] == pytest.approx(1.5, rel=0.02)
    assert answer["healthy_s"] == pytest.approx(1, rel=0.02)
    assert answer["attempts"] == [{"first": 1, "last": 220, "steps": 220, "healthy_s": answer["healthy_s"]}]


def test_attempts_are_looked_at_one_by_one(folder: Path) -> None:
    """What was found in each is told with its number; the start of the second is no alarm."""
    answer = document("twice.csv")
    assert [(each["attempt"], each["start"], each["end"]) for each in answer["episodes"]] == [
        (1, 101, 161),
        (2, 101, 161),
    ]
    assert [each["attempt"] for each in answer["change_points"]] == [1, 1, 2, 2]


def test_flags_name_columns_and_units(folder: Path) -> None:
    """As the last example of the help does."""
    answer = document("ms.jsonl", "--column", "train/time", "--unit", "ms", "--step-column", "n")
    assert answer["healthy_s"] == pytest.approx(1, rel=0.02)
    assert (answer["episodes"][0]["start"], answer["episodes"][0]["end"]) == (101, 161)


def test_slow_and_method_change_what_is_told(folder: Path) -> None:
    """A threshold of 2 is not reached; the other rule answers in the same form."""
    assert document("steps.csv", "--slow", "2")["change_points"] == []
    eroica = document("steps.csv", "--method", "eroica")
    assert set(eroica["change_points"][0]) == set(document("steps.csv")["change_points"][0])


def test_an_open_episode_ends_with_null(tmp_path: Path) -> None:
    """The job is slow now."""
    rows = "".join(f"{step},{1.5 if step > 100 else 1.0}\n" for step in range(1, 161))
    (tmp_path / "now.csv").write_text("step,duration_s\n" + rows)
    (episode,) = document("now.csv")["episodes"]
    assert (episode["start"], episode["end"]) == (101, None)
    assert "101 to now (1.50 x)" in call("now.csv")[1]


@pytest.mark.processes
def test_json_is_all_that_a_pipe_gets(folder: Path) -> None:
    """One line, the same as within this process."""
    done = detect(folder, "steps.csv", "--json")
    assert (done.returncode, done.stdout, done.stderr) == call("steps.csv", "--json")


@pytest.mark.processes
def test_bad_rows_are_one_line_in_a_process(folder: Path) -> None:
    """Exit code 2 and no traceback."""
    (folder / "bad.csv").write_text("step,duration_s\n1,1\n2,nan\n")
    done = detect(folder, "bad.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "holdfast: bad.csv, row 3: duration_s is nan, expected a finite number\n"


@pytest.mark.processes
def test_text_says_when_by_how_much_and_what_is_healthy(folder: Path) -> None:
    """One sentence, and a table of the changes."""
    done = detect(folder, "steps.csv")
    first, head, *rows = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert first.startswith("steps 1 to 220: slow once: 101 to 160 (1.50 x); healthy step time ")
    assert head.split() == ["from", "step", "known", "at", "before", "after", "change", "confidence"]
    assert [row.split()[2] for row in rows] == ["slow", "relief"]


def test_too_few_steps_are_no_error(tmp_path: Path) -> None:
    """Nothing can be told of one step, and that is said."""
    (tmp_path / "one.csv").write_text("step,duration_s\n7,1\n")
    assert call("one.csv") == (0, "steps 7 to 7: too few steps to tell\n", "")
    assert document("one.csv")["healthy_s"] is None


@pytest.mark.parametrize("name", ["chart.svg", "chart.html"])
def test_a_chart_is_written_and_well_formed(name: str, folder: Path) -> None:
    """With JSON it is not spoken of."""
    assert call("twice.csv", "--chart", name)[1].splitlines()[-1] == f"chart written to {name}"
    drawing = (folder / name).read_text()
    if name.endswith(".html"):
        drawing = drawing[drawing.index("<svg") : drawing.index("</svg>") + len("</svg>")]
    assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"
    assert document("twice.csv", "--chart", name)["episodes"] != []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.csv"], "none.csv: cannot be read: No such file or directory"),
        (["."], ".: cannot be read: Is a directory"),
        (["steps.csv", "--column", "x"], "steps.csv: no column 'x', expected one of 'step', 'duration_s'"),
        (["steps.csv", "--unit", "h"], "--unit is 'h', expected one of s, ms, us, ns"),
        (["steps.csv", "--method", "x"], "--method is 'x', expected one of bayes, eroica"),
        (["steps.csv", "--slow", "0.9"], "--slow is 0.9, expected a factor above 1, such as 1.10"),
        (["steps.csv", "--slow", "nan"], "--slow is nan, expected a factor above 1, such as 1.10"),
        (
            ["steps.csv", "--chart", "x.png"],
            "--chart is 'x.png', expected a name that ends in .svg or .html",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], said: str, folder: Path) -> None:
    """On stderr, and nothing on stdout."""
    assert call(*arguments) == (2, "", f"holdfast: {said}\n")


def test_help_has_examples(tmp_path: Path) -> None:
    """One for each sort of file."""
    code, out, _ = call("--help")
    assert (code, out.count("Example: holdfast detect ")) == (0, 4)


def test_steps_are_found_in_collective_calls(tmp_path: Path) -> None:
    """A file with the times and kinds of calls needs no flags, and one without a pattern is refused."""
    rows, now_s = ["time_s,op"], 0.0
    for step in range(80):
        for op in ("all_gather", "all_gather", "reduce_scatter", "all_reduce"):
            rows.append(f"{now_s:.4f},{op}")
            now_s += 0.5 if 40 <= step < 60 else 0.25
    path = tmp_path / "calls.csv"
    path.write_text("\n".join(rows) + "\n")
    code, out, _ = call(str(path), "--json")
    found = json.loads(out)
    assert code == 0
    assert [(each["step"], each["direction"]) for each in found["change_points"]] == [
        (40, "slow"),
        (60, "relief"),
    ]
    path.write_text("\n".join(["time_s,op", "0,a", "1,b", "2,c", "3,d"]) + "\n")
    code, _, error = call(str(path))
    assert code == 2
    assert "repeat no pattern three times" in error


@pytest.mark.processes
def test_it_needs_neither_torch_nor_polars(bare: Path, folder: Path) -> None:
    """Without polars, Parquet is refused in one line that says how to get it."""
    done = detect(folder, "steps.csv", "--json", "--chart", "x.svg", bare=bare)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["episodes"][0]["start"] == 101
    done = detect(folder, "steps.parquet", bare=bare)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "holdfast: steps.parquet: reading Parquet needs polars: pip install polars\n"


# --- what once went wrong ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.log", "step: 5\n loss: 3 tps: 7\n"),
        ("b.csv", "step,duration_s\n" + "".join(f"{step}e20,1\n" for step in range(1, 20))),
        ("c.jsonl", '{"step": 1, "duration_s": 1' + "0" * 400 + "}\n"),
        ("d.csv", "step,duration_ms\n1,1e-323\n2,1e-323\n3,1\n"),
        ("e.csv", "step,duration_s,tokens\n" + "".join(f"{step},1,1e-300\n" for step in range(1, 20))),
    ],
)
def test_bad_content_is_one_line_and_exit_code_2(name: str, content: str, tmp_path: Path) -> None:
    """No traceback, whatever a file has in it."""
    (tmp_path / name).write_text(content)
    code, out, err = call(name)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_flags_that_do_nothing_are_refused(tmp_path: Path) -> None:
    """A log has no columns."""
    (tmp_path / "a.log").write_text("iteration 1/ 9 | elapsed time per iteration (ms): 5.0 |\n")
    assert call("a.log", "--column", "x")[0] == 2
