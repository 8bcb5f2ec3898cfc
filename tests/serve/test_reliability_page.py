"""The page of a reliability report: everything in it, nothing of the records' own making."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec
import polars as pl
import pytest

import clicalls
from holdfast.reliability.report import Books, build
from holdfast.reliability.tables import ATTEMPTS, Broken, Reading
from holdfast.serve.reliabilitypage import draw_page
from holdfast.simulate.cluster import simulate_cluster
from holdfast.simulate.cluster_plan import ClusterPlan


class Said(NamedTuple):
    """What a call of the CLI left."""

    code: int | str | None
    out: str
    err: str


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Runs the CLI in this process."""

    def run(*arguments: str) -> Said:
        return Said(clicalls.call([*arguments], monkeypatch) or 0, *capsys.readouterr())

    return run


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SACCT = """\
JobID|State|Start|End|NNodes|AllocTRES|NodeList
1|NODE_FAIL|2024-05-01T00:00:00|2024-05-02T00:00:00|4|gres/gpu=32|n[1-4]
1|COMPLETED|2024-05-02T01:00:00|2024-05-04T00:00:00|4|gres/gpu=32|n[5-8]
2|FAILED|2024-05-02T00:00:00|2024-05-02T01:00:00|1|gres/gpu=8|n1
"""


def test_every_part_of_a_full_report_is_on_the_page() -> None:
    """Headings, a chart, the nodes, and the figures of the report itself."""
    record = simulate_cluster(ClusterPlan(nodes=64, days=28.0), random.Random(2))
    readings = [
        ("sacct.txt", "attempts", Reading(record.attempts, record.attempts.height)),
        ("events.txt", "events", Reading(record.events, record.events.height)),
    ]
    report = build(Books(readings), over_gpus=8)
    page = draw_page(report)
    for words in (
        "How attempts end",
        "over time",
        "until a job fails",
        "What broke",
        "ETTR",
        "cost",
        "Checks",
    ):
        assert words in page
    assert "<svg" in page
    assert report.jobs is not None
    assert f"{report.jobs.attempts:,} attempts" in page
    assert f"{report.jobs.rates.rate.per_1000_node_days:.2f}" in page
    assert report.jobs.expected is not None
    for row in report.jobs.expected.rows:
        assert row["ettr_low"] < row["ettr"] < row["ettr_high"] < 1
        assert f"{row['ettr']:.3f}" in page
    assert "http" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_words_of_the_records_cannot_become_part_of_the_page() -> None:
    """A node, a file or a complaint with markup in it is shown as it is."""
    evil = "<script>alert(1)</script>"
    row = {
        "job": "1", "attempt": 1, "state": "FAILED", "start": NOON, "end": NOON + timedelta(hours=30),
        "nodes": 1, "gpus": 8, "node_list": "n1", "submit": NOON,
    }  # fmt: skip
    table = pl.DataFrame(
        [row | {"job": str(n), "node_list": f"{evil}{n}"} for n in range(12)], schema=ATTEMPTS
    )
    reading = Reading(table, 13, 1, (Broken(place=evil, why=evil),))
    page = draw_page(build(Books([(evil, "attempts", reading)]), over_gpus=0))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_the_verb_writes_the_page_and_prints_the_same_numbers(
    tmp_path: Path, call: Callable[..., Said]
) -> None:
    """From a folder of records; the JSON has what the words say."""
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "sacct.txt").write_text(SACCT)
    page = tmp_path / "report.html"
    said = call("reliability", "report", str(tmp_path / "books"), "--out", str(page), "--over-gpus", "0")
    assert (said.code, said.err) == (0, "")
    assert "3 attempts of 2 jobs" in said.out
    assert "3 attempts of 2 jobs" in page.read_text()
    told = call("reliability", "report", str(tmp_path / "books"), "--over-gpus", "0", "--json")
    jobs = msgspec.json.decode(told.out)["jobs"]
    assert (jobs["attempts"], jobs["jobs"]) == (3, 2)
    assert jobs["rates"]["rate"]["failures"] == 1
    assert {row["state"]: row["attempts"] for row in jobs["statuses"]} == {
        "NODE_FAIL": 1,
        "COMPLETED": 1,
        "FAILED": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["gone.txt"], "gone.txt"),
        (["empty"], "an empty folder"),
        (["backwards.txt"], "backwards.txt, row 2: "),
        (["sacct.txt", "--out", "page.pdf"], "ends in .html"),
        (["sacct.txt", "--over-gpus", "-1"], "--over-gpus"),
        (["sacct.txt", "--timezone", "Mars/Olympus"], "Mars/Olympus"),
    ],
)
def test_bad_input_gets_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[..., Said],
    arguments: list[str],
    expected: str,
) -> None:
    """And exit code 2, and no page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sacct.txt").write_text(SACCT)
    (tmp_path / "empty").mkdir()
    backwards = "JobID|State|Start|End\n1|COMPLETED|2024-01-02T00:00:00|2024-01-01T00:00:00\n"
    (tmp_path / "backwards.txt").write_text(backwards)
    said = call("reliability", "report", *arguments)
    assert (said.code, said.out) == (2, "")
    assert len(said.err.splitlines()) == 1
    assert expected in said.err


def test_lemons_need_a_fleet(tmp_path: Path, call: Callable[..., Said]) -> None:
    """Of a handful of nodes none can be told from the others, if they are fewer than eight."""
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT.replace("n[5-8]", "n[1-4]"))
    said = call("reliability", "lemons", str(path))
    assert said.code == 2
    assert "too few nodes" in said.err
    path.write_text(SACCT)
    assert call("reliability", "lemons", str(path)).code == 0
    assert call("reliability", "lemons", str(path), "--drain").out == ""
