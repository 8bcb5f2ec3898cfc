"""``holdfast simulate`` as a person uses it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import cli
from holdfast.cli.quantities import parse_count, parse_duration, parse_positive, show_duration
from holdfast.errors import InputError

QUICK = ["simulate", "--every", "10min", "--memory", "none"]
PEERS = ["--strategy", "oobleck", "--strategy", "fault-free"]


def call(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    """Run the command line and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["holdfast", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code


def test_table_has_every_strategy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job with its micro-batches and memory, the trace, one row each, and why one is missing."""
    assert call(QUICK, monkeypatch) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "pp 8, dp 4, 16 micro-batches, no memory cap" in out
    assert "one node lost every 10 min until half are gone; 2.67 h; 32 nodes as 32 workers" in out
    for name in ("holdfast", "recycle", "oobleck", "varuna", "drop-pipeline", "fault-scaled"):
        assert any(row.startswith(f"{name} ") and "%" in row for row in out.splitlines())
    assert "bamboo: out of memory" in out


def test_json_is_one_document_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its accounts add up to the wall clock."""
    assert call([*QUICK, "--strategy", "holdfast", "--strategy", "bamboo", "--json"], monkeypatch) == 0
    out, err = capsys.readouterr()
    assert (err, out.count("\n")) == ("", 1)
    document = json.loads(out)
    assert [document[key] for key in ("model", "workers", "pp", "dp", "microbatches", "memory")] == [
        *("gpt3-6.7b", 32, 8, 4, 16, None)
    ]
    holdfast, bamboo = document["strategies"]
    assert bamboo == {"name": "bamboo", "missing": "out of memory"}
    assert sum(holdfast["spent"].values()) == pytest.approx(document["trace"]["duration_s"])
    assert holdfast["failures"] == 15
    assert holdfast["series"][0][0] == 0


def test_bars_are_for_people(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A terminal shows them on stderr, but not beside a document."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # What takes a stream for a terminal.
    assert call([*QUICK, *PEERS], monkeypatch) == 0
    assert "oobleck" in capsys.readouterr().err
    assert call([*QUICK, *PEERS, "--json"], monkeypatch) == 0
    assert capsys.readouterr().err == ""


def simulated(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """The JSON of a run."""
    assert call(["simulate", *PEERS, "--json", *arguments], monkeypatch) == 0
    return json.loads(capsys.readouterr().out)


def test_trace_files_of_both_kinds_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nodes by name as they are, counts by their share of the peak, or clipped."""
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("".join(f"0,add,n{n}\n" for n in range(32)) + "60000,remove,n5\n120000,add,n99\n")
    counts = tmp_path / "counts.txt"
    counts.write_text("2021-12-11, 11:00:00, 64\n2021-12-11, 11:30:00, 48\n2021-12-11, 12:00:00, 48\n")
    named = simulated(["--trace", str(nodes)], monkeypatch, capsys)
    assert named["trace"]["workers_lost"] == 1
    shared = simulated(["--trace", str(counts)], monkeypatch, capsys)
    assert shared["trace"]["workers_lost"] == 8
    clipped = simulated(["--trace", str(counts), "--fit", "clip", "--seed", "3"], monkeypatch, capsys)
    assert clipped["trace"]["fitted"].endswith("(clip)")


def test_random_trace_follows_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same seed, the same document; another seed, another one."""
    flags = ["--failures-per-node-day", "2", "--repair", "30min", "--hours", "12"]
    first, again, other = (
        simulated([*flags, "--seed", seed], monkeypatch, capsys) for seed in ("1", "1", "2")
    )
    assert first == again != other
    assert first["trace"]["duration_s"] == 12 * 3600


@pytest.mark.parametrize("name", ["figure.svg", "figure.html"])
def test_figure_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a drawing alone or on a page."""
    path = tmp_path / name
    assert call([*QUICK, *PEERS, "--chart", str(path)], monkeypatch) == 0
    assert f"chart written to {path}" in capsys.readouterr().out.replace("\n", "")
    assert path.read_text().startswith("<svg" if name.endswith("svg") else "<!doctype html>")


def test_names_of_files_are_printed_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brackets are no markup, in the name of the trace and in that of the chart."""
    monkeypatch.chdir(tmp_path)
    Path("a[").mkdir()
    Path("[b].csv").write_text("0,add,a\n0,add,b\n60000,remove,b\n")
    assert call(["simulate", *PEERS, "--trace", "[b].csv", "--chart", "a[/b].svg"], monkeypatch) == 0
    out = capsys.readouterr().out
    assert "[b].csv: nodes that come and go; 1 min; 2 nodes at most" in out
    assert "chart written to a[/b].svg\n" in out


def test_explain_says_what_is_modelled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence for each strategy, with its source."""
    assert call([*QUICK, *PEERS, "--explain"], monkeypatch) == 0
    assert "oobleck: throughput by number of nodes and pause at every change from its artifact" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected exactly one of --trace, --every and --failures-per-node-day"),
        (["--every", "1h", "--failures-per-node-day", "1"], "expected exactly one of --trace"),
        (["--every", "soon"], "--every is 'soon', expected a positive time like 30s, 10min, 6h or 2d"),
        (["--every", "0min"], "--every is '0min', expected a positive time"),
        (["--every", "1h", "--repair", "1h"], "--repair and --hours belong to --failures-per-node-day"),
        (["--failures-per-node-day", "-1"], "--failures-per-node-day is '-1', expected a number above 0"),
        (["--failures-per-node-day", "nan"], "--failures-per-node-day is 'nan', expected a number above 0"),
        (["--failures-per-node-day", "1", "--hours", "x"], "--hours is 'x', expected a number above 0"),
        (["--every", "1h", "--model", "gpt9"], "--model is 'gpt9', expected one of gpt3-medium"),
        (["--every", "1h", "--strategy", "luck"], "--strategy is 'luck', expected one of holdfast"),
        (["--every", "1h", "--microbatches", "0"], "--microbatches is '0', expected a whole number from 1"),
        (["--every", "1h", "--microbatches", "1.5"], "--microbatches is '1.5', expected a whole number"),
        (["--every", "1h", "--memory", "0"], "--memory is '0', expected a whole number from 1"),
        (["--every", "1h", "--memory", "much"], "--memory is 'much', expected a number from 1 on, or none"),
        (["--every", "1h", "--fit", "tight"], "--fit is 'tight', expected share or clip"),
        (["--every", "1h", "--seed", "-3"], "--seed is '-3', expected a whole number from 0"),
        (["--every", "1h", "--chart", "a.png"], "--chart is 'a.png', expected a name that ends in .svg"),
        (["--every", "1h", "--chart", "no/such/a.svg"], "--chart is 'no/such/a.svg', expected a folder"),
        (["--every", "1h", "--chart", "d.svg"], "--chart is 'd.svg', expected a file, not a folder"),
        (["--every", "1h", "--chart", f"{300 * 'x'}/a.svg"], f"--chart {300 * 'x'}/a.svg: cannot be written"),
        (["--every", "999999999d"], "--every is '999999999d', expected at most 3650d"),
        (["--every", "3650d"], "--every: the trace lasts 58,400 days, expected at most 3,650"),
        (["--failures-per-node-day", "1e-320"], "--failures-per-node-day is '1e-320', expected a number"),
        (["--failures-per-node-day", "1e300"], "--failures-per-node-day is '1e300', expected a number"),
        (["--failures-per-node-day", "1_0"], "--failures-per-node-day is '1_0', expected a number"),
        (
            ["--failures-per-node-day", "1e6", "--repair", "1s", "--hours", "999"],
            "--failures-per-node-day, --repair and --hours: about 105,",
        ),
        (["--failures-per-node-day", "1", "--hours", "1e300"], "--hours is '1e300', expected a number above"),
        (["--trace", "far.csv"], "far.csv: the trace lasts 11,574,074 days, expected at most 3,650"),
        (["--trace", "empty.csv"], "empty.csv: the trace has no nodes at any time, expected one or more"),
        (["--trace", "pipe"], "pipe: cannot be read: expected a regular file"),
        (["--trace", "no\nsuch"], "no\\nsuch: cannot be read: No such file"),
        (["--every", "1h", "--fly"], "no such option: --fly"),
        (["--every"], "option '--every' requires an argument"),
        (["--trace", "missing.csv"], "missing.csv: cannot be read: No such file or directory"),
        (["--trace", "."], ".: cannot be read: Is a directory"),
        (["--trace", "bad.csv"], "bad.csv: row 2 is '5,lost,b', expected 'MILLISECONDS,add|remove,NODE'"),
        (["--trace", "binary.csv"], "binary.csv: cannot be read: it is not text in UTF-8"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the flag or the file and the row, what it is, and what was expected; nothing on stdout."""
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text("0,add,a\n5,lost,b\n")
    Path("far.csv").write_text("0,add,a\n999999999999999,add,b\n")
    Path("empty.csv").write_text("2024-01-01, 00:00:00, 0\n2024-01-01, 01:00:00, 0\n")
    Path("d.svg").mkdir()
    os.mkfifo("pipe")
    Path("binary.csv").write_bytes(b"\xff\xfe\x00")
    assert call(["simulate", *arguments], monkeypatch) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"holdfast: {message}")


def test_help_has_examples(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Two of them, that begin with the command."""
    assert call(["simulate", "--help"], monkeypatch) == 0
    assert capsys.readouterr().out.count("Example: holdfast simulate") == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("10min", 600), ("6h", 21_600), ("1.5 h", 5400), ("2d", 172_800)]
)
def test_durations_are_read_and_shown(text: str, seconds: float) -> None:
    """With the units that people type; what is shown can be typed again."""
    assert parse_duration(text, "--x") == seconds
    assert parse_duration(show_duration(seconds), "--x") == seconds


@pytest.mark.parametrize("text", ["", "10", "min", "-5min", "1e3s", "5 weeks", "0s", "٣s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """The flag is named."""
    with pytest.raises(InputError, match="--x is "):
        parse_duration(text, "--x")


def test_numbers_are_read() -> None:
    """Whole ones between their limits, others above 0."""
    assert (parse_count(" 7 ", "--x", least=1, most=9), parse_positive("1e-3", "--x")) == (7, 0.001)
    for text in ("10", "0", "x", "", "1.0"):
        with pytest.raises(InputError, match="from 1 to 9"):
            parse_count(text, "--x", least=1, most=9)
    for text in ("inf", "0", "-2", "x"):
        with pytest.raises(InputError, match="above 0"):
            parse_positive(text, "--x")
