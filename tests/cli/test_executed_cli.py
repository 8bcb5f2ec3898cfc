"""``holdfast plan`` beside what was executed: figures, charts, one document, one line for what is wrong."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.planning import Recorded, print_executed
from holdfast.errors import InputError
from holdfast.job.points import POINT_OF
from holdfast.job.timeline import Timeline
from schedules import make_problem, timed_1f1b


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Timelines of three steps of 2x2 workers, 1.1 dead; an operation of cost 1 took 10 ms."""
    timed = timed_1f1b(make_problem(2, 2, 2, dead="1.1"))
    for rank, order in enumerate(timed.schedule.orders):
        now_s: deque[float] = deque()
        timeline = Timeline(tmp_path / "timelines", rank=rank, clock=now_s.popleft)
        for step in range(3):
            for op, start, end in zip(order, timed.starts[rank], timed.ends[rank], strict=True):
                now_s += [step + start / 100, step + end / 100]
                timeline.reach(POINT_OF[op.kind], op, step)  # type: ignore[arg-type]
                timeline.reach("done", op, step)
        if order:
            timeline.write()
    return tmp_path / "timelines"


def test_medians_are_told_executed_beside_planned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In milliseconds, with who was dead and which step it was."""
    flags: dict[str, Any] = {"dp": None, "dead": None, "migrate": False, "costs": ["5,5,5"]}
    print_executed(Recorded(folder), flags, None, [], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "2 pipelines x 2 stages x 2 micro-batches, 1.1 dead; step 1 as executed, beside its plan"
    )
    assert "F forward                10 ms  planned 5 ms, x2.00, median of 8" in lines
    assert lines[-1] == "planned: by the costs given, in ms"


def test_the_document_is_alone_on_stdout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the step that was asked for, while charts are written."""
    chart = folder / "step.svg"
    print_executed(Recorded(folder, 2), {}, None, [chart, folder / "step.html"], as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["step"], document["dead"]) == (2, ["1.1"])
    assert document["medians"]["B"] == {"executed": 20.0, "planned": 20.0}
    assert chart.read_text().startswith("<svg")
    assert (folder / "step.html").read_text().startswith("<!doctype html>")


def test_costs_may_come_from_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the timelines say themselves is taken from them."""
    file = folder / "job.toml"
    file.write_text("[plan]\ndp = 9\npp = 9\nmicrobatches = 9\ncosts = [4, 4, 4]\n")
    print_executed(Recorded(folder), {}, file, [], as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["dp"], document["medians"]["F"]["planned"]) == (2, 4.0)


@pytest.mark.parametrize(
    ("recorded", "flags", "words"),
    [
        (("timelines", None), {"dead": ["0.1"]}, "--dead is given, but --executed"),
        (("timelines", 7), {}, "--executed: step 7 was not recorded whole"),
        (("nowhere", None), {}, "nowhere: no rank_*.jsonl in it, expected a folder of timelines"),
        (("timelines", None), {"slow": ["1.1=0.5"]}, "1.1"),
    ],
)
def test_what_does_not_fit_is_one_line(
    folder: Path, recorded: tuple[str, int | None], flags: dict[str, Any], words: str
) -> None:
    """It names the flag or the folder."""
    with pytest.raises(InputError) as caught:
        print_executed(Recorded(folder.parent / recorded[0], recorded[1]), flags, None, [], as_json=False)
    assert words in str(caught.value)
