"""``holdfast plan``: figures and grid for people, one document for programs, one line for what is wrong."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from helpers import run_python
from holdfast import cli
from holdfast.plan.ops import Op, Schedule
from holdfast.plan.problem import Costs, Problem, Worker
from holdfast.plan.timing import Timed
from holdfast.plan.validate import validate
from schedules import make_problem

SHAPE = ("--dp", "3", "--pp", "4", "--microbatches", "6")
KEYS = [
    "dp",
    "pp",
    "microbatches",
    "mode",
    "period",
    "makespan",
    "lower_bound",
    "fault_free",
    "plan_seconds",
    "peak_in_flight",
    "ops",
]
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


def _document(result: Call) -> dict[str, Any]:
    code, out, err = result
    assert (code, err) == (0, "")
    document: dict[str, Any] = json.loads(out)
    return document


def _timed(document: dict[str, Any]) -> Timed:
    """Return the schedule that the rows of a document describe."""
    rows: dict[Worker, list[tuple[Op, float, float]]] = {
        Worker(pipeline, stage): [] for pipeline in range(document["dp"]) for stage in range(document["pp"])
    }
    for name, kind, pipeline, microbatch, stage, start, end in document["ops"]:
        worker = Worker(*map(int, name.split(".")))
        rows[worker].append((Op(kind, pipeline, microbatch, stage), start, end))
    orders = tuple(tuple(op for op, _, _ in row) for row in rows.values())
    return Timed(
        schedule=Schedule(
            dp=document["dp"], pp=document["pp"], microbatches=document["microbatches"], orders=orders
        ),
        starts=tuple(tuple(start for _, start, _ in row) for row in rows.values()),
        ends=tuple(tuple(end for _, _, end in row) for row in rows.values()),
    )


# --- for programs -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["adaptive", "naive", "decoupled", "staggered"])
def test_the_document_has_its_keys_and_its_figures_follow_from_its_rows(call: Any, mode: str) -> None:
    """Period, makespan and peaks can be computed again from the operations, which form a valid schedule."""
    document = _document(call(*SHAPE, "--dead", "1.2", "--mode", mode, "--json"))
    assert list(document) == KEYS
    assert (document["dp"], document["pp"], document["microbatches"], document["mode"]) == (3, 4, 6, mode)
    assert set(document["fault_free"]) == {"1f1b", "zero_bubble"}
    assert document["fault_free"]["1f1b"] == 27.0
    timed = _timed(document)
    assert validate(make_problem(dead="1.2"), timed) == []
    assert (document["period"], document["makespan"]) == (timed.period, timed.makespan)
    assert document["peak_in_flight"] == {str(w): peak for w, peak in timed.peak_in_flight.items()}
    assert document["period"] >= document["lower_bound"] == 27.0
    assert document["plan_seconds"] >= 0
    kinds = {row[1] for row in document["ops"]}
    assert kinds <= set("FB") if mode == "naive" else kinds <= set("FIWB")


def test_figures_of_the_worked_example(call: Any) -> None:
    """One worker dead in 3x4x6: re-routing alone costs a third, the adaptive plan nothing."""
    adaptive = _document(call(*SHAPE, "--dead", "1.2", "--json"))
    naive = _document(call(*SHAPE, "--dead", "1.2", "--mode", "naive", "--json"))
    assert (adaptive["period"], naive["makespan"]) == (27.0, 36.0)


def test_every_flag_reaches_the_plan(call: Any) -> None:
    """Costs per stage, speeds, transfers and caps: the schedule is valid for exactly that problem."""
    flags = ["--dead", "1.1", "--slow", "0.0=0.5", "--slow", "2.1=0.7"]
    flags += ["--costs", "5,6,4", "--costs", "1=7.5,8,4.25", "--comm", "0.3", "--memory", "5"]
    document = _document(call("--dp", "3", "--pp", "2", "--microbatches", "4", *flags, "--json"))
    problem = make_problem(
        3,
        2,
        4,
        dead="1.1",
        slow="0.0=0.5 2.1=0.7",
        costs=(Costs(5, 6, 4), Costs(7.5, 8, 4.25)),
        comm=0.3,
        memory=(5, 5),
    )
    assert validate(problem, _timed(document)) == []
    assert max(document["peak_in_flight"].values()) <= 5
    assert document["peak_in_flight"]["1.1"] == 0


def test_times_keep_six_decimals(call: Any) -> None:
    """A third is written as 0.333333."""
    document = _document(call("--dp", "1", "--pp", "1", "--microbatches", "1", "--slow", "0.0=0.3", "--json"))
    assert document["ops"][0][5:] == [0.0, 3.333333]
    assert document["period"] == document["makespan"] == 10.0


def test_moves_are_part_of_the_document_only_when_asked_for(call: Any) -> None:
    """Without --migrate nobody changes its role."""
    flags = ["--dp", "4", "--pp", "2", "--microbatches", "8", "--dead", "1.1", "--dead", "2.1"]
    stays = _document(call(*flags, "--json"))
    moves = _document(call(*flags, "--migrate", "--state-bytes", "10,20", "--json"))
    assert list(stays) == KEYS
    assert list(moves) == [*KEYS[:-1], "moves", "ops"]
    assert moves["period"] < stays["period"]
    (move,) = moves["moves"]
    assert (move["worker"].split(".")[1], move["to"].split(".")[1], move["size_bytes"]) == ("0", "1", 20)


def test_people_are_told_who_changes_its_role(call: Any, tmp_path: Path) -> None:
    """With the bytes to copy, also on the page; the first line still names who is dead."""
    page = tmp_path / "plan.html"
    flags = ["--dp", "4", "--pp", "2", "--microbatches", "8", "--dead", "1.1", "--dead", "2.1"]
    code, out, _ = call(*flags, "--migrate", "--state-bytes", "3000000000", "--chart", str(page))
    assert code == 0
    assert out.startswith("4 pipelines x 2 stages x 8 micro-batches, 1.1, 2.1 dead; adaptive plan\n")
    told = re.search(r"workers that change their role:\n  (\d\.0 becomes \d\.1, copying 3 GB)\n", out)
    assert told is not None
    assert "Each row is a role" in out
    assert told[1] in page.read_text()
    assert "1.1, 2.1 dead; adaptive plan" in page.read_text()


# --- for people -------------------------------------------------------------------------------


def test_people_get_the_figures_first_then_the_grid(call: Any) -> None:
    """No line is longer than a hundred columns, and nothing is coloured in a pipe."""
    code, out, err = call(*SHAPE, "--dead", "1.2")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "3 pipelines x 4 stages x 6 micro-batches, 1.2 dead; adaptive plan"
    assert re.fullmatch(r"period +27  proven optimal: the lower bound is 27", lines[2])
    assert re.fullmatch(r"fault-free 1F1B +27  the plan is as fast", lines[3])
    assert re.fullmatch(r"fault-free zero-bubble +19  the plan takes 42\.1 % longer", lines[4])
    assert re.fullmatch(r"planned in +[\d.]+ s", lines[7])
    moved = [line for line in lines if line.startswith("  1.2 to ")]
    assert sum(len(line.partition(": ")[2].split()) for line in moved) == 6
    assert "1.2  dead" in lines
    assert lines[-1].endswith("F3¹ re-routed from pipeline 1")
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in out


def test_a_terminal_gets_colours_in_its_own_width(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The letters stay the same."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("TERM", "xterm-256color")
    code, out, _ = call(*SHAPE)
    assert code == 0
    assert "\x1b[" in out
    plain = re.sub(r"\x1b\[[\d;]*m", "", out)
    assert max(len(line) for line in plain.splitlines() if re.match(r"\d\.\d", line)) <= 70


def test_help_shows_examples(call: Any) -> None:
    """And names every flag."""
    code, out, _ = call("--help")
    assert code == 0
    assert "Example: holdfast plan --dp 3 --pp 4 --microbatches 6 --dead 1.2" in out
    for flag in ("dp", "pp", "microbatches", "dead", "slow", "costs", "comm", "memory", "mode", "migrate"):
        assert f"--{flag} " in out


# --- charts -----------------------------------------------------------------------------------


def test_charts_show_the_job_without_faults_naive_and_adaptive(call: Any, tmp_path: Path) -> None:
    """As a picture and as a page, in one go; both are named afterwards."""
    svg, page = tmp_path / "plan.svg", tmp_path / "plan.html"
    code, out, _ = call(*SHAPE, "--dead", "1.2", "--chart", str(svg), "--chart", str(page))
    assert code == 0
    assert out.endswith(f"chart written to {svg}\nchart written to {page}\n")
    words = [element.text for element in ET.fromstring(svg.read_text()).iter()]
    assert {
        "Fault-free 1F1B",
        "Naive re-routing",
        "Adaptive plan",
        "makespan 36",
        "period 27 (stage 0)",
    } <= set(words)
    assert page.read_text().count("<svg") == 1


def test_a_chart_leaves_the_document_alone(call: Any, tmp_path: Path) -> None:
    """With --json, nothing but the document is on stdout; naive is not compared with itself."""
    svg = tmp_path / "plan.svg"
    document = _document(call(*SHAPE, "--dead", "1.2", "--mode", "naive", "--json", "--chart", str(svg)))
    assert document["mode"] == "naive"
    assert svg.read_text().count("Naive re-routing</text>") == 1


# --- the file ---------------------------------------------------------------------------------

JOB = """
[plan]
dp = 3
pp = 4
microbatches = 6
dead = ["1.2"]
slow = {"0.1" = 0.5}
costs = {default = [1, 1, 1], "2" = [2.5, 1, 1]}
comm = 0.1
memory = [9, 9, 9, 8]
mode = "staggered"
migrate = false
state-bytes = 1000
"""


def _write(tmp_path: Path, text: str) -> str:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return str(file)


def test_a_file_says_the_same_as_flags(call: Any, tmp_path: Path) -> None:
    """All keys are named like the flags, and lead to the same plan."""
    flags = ["--dead", "1.2", "--slow", "0.1=0.5", "--costs", "2=2.5,1,1", "--comm", "0.1"]
    flags += ["--memory", "9,9,9,8", "--mode", "staggered", "--state-bytes", "1000"]
    by_flags = _document(call(*SHAPE, *flags, "--json"))
    by_file = _document(call("--file", _write(tmp_path, JOB), "--json"))
    del by_flags["plan_seconds"], by_file["plan_seconds"]
    assert by_file == by_flags


def test_flags_replace_what_the_file_says(call: Any, tmp_path: Path) -> None:
    """One key at a time."""
    file = _write(tmp_path, JOB)
    flags = ["--mode", "naive", "--dead", "2.2", "--costs", "1,1,1", "--memory", "12", "--comm", "0"]
    document = _document(call("--file", file, *flags, "--json"))
    assert document["mode"] == "naive"
    problem = make_problem(dead="2.2", slow="0.1=0.5")
    assert validate(problem, _timed(document)) == []
    assert isinstance(problem, Problem)


# --- the docs ---------------------------------------------------------------------------------

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _snippet(language: str) -> str:
    found = re.search(f"```{language}\n(.*?)```", (DOCS / "plan.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_file_in_the_docs_can_be_planned(call: Any, tmp_path: Path) -> None:
    """Every key of it is known."""
    assert _document(call("--file", _write(tmp_path, _snippet("toml")), "--json"))["mode"] == "adaptive"


def test_the_docs_name_every_flag(call: Any) -> None:
    """And none that is not there."""
    _, out, _ = call("--help")
    flags = set(re.findall(r"^  (--[a-z-]+)", out, re.MULTILINE))
    rows = [line for line in (DOCS / "plan.md").read_text().splitlines() if line.startswith("| `--")]
    named = {flag for row in rows for flag in re.findall(r"--[a-z-]+", row.split("|")[1])}
    assert named == flags


def test_the_document_in_the_docs_has_the_keys_of_a_real_one() -> None:
    """In the same order."""
    assert re.findall(r'"([a-z_]+)":', _snippet("json").replace('"zero_bubble":', "")) == KEYS


@pytest.mark.processes
def test_the_code_in_the_docs_runs(tmp_path: Path) -> None:
    """It prints the schedule, then the grid."""
    done = run_python("-c", _snippet("python"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("dp 3 pp 4 microbatches 6\n0.0: 0F0.0 ")
    assert "1.2  dead" in done.stdout
