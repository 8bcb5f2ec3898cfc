"""Traces of operations: read or refused, played again, and blamed on whom it was."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from optraces import Job, draw, write

from clicalls import call, document
from holdfast.diagnose.replay import lay_out
from holdfast.diagnose.trial import judge, what_if
from holdfast.errors import InputError
from holdfast.observe.optrace import OpTrace, read_op_trace

DATA = Path(os.environ.get("HOLDFAST_DATA") or "/nowhere") / "stragglers"
HEADER = "dp_rank,stage,step,optype,start_ts,duration\n"


def trace_of(job: Job, tmp_path: Path, seed: int = 0) -> OpTrace:
    """A trace of a job, through a file."""
    return read_op_trace(write(draw(job, np.random.default_rng(seed)), tmp_path / "trace.csv"))


@pytest.mark.parametrize("seed", range(5))
def test_a_played_step_lasts_as_long_as_the_one_that_was_recorded(seed: int, tmp_path: Path) -> None:
    """But for what receiving ahead would save: these workers begin to receive only when they need to."""
    steps = lay_out(trace_of(Job(noise=0.2), tmp_path, seed))
    ends = (steps.start_s + steps.duration_s).max(axis=0)
    played = steps.play(steps.moved_s)
    assert np.all(played <= ends + 1e-9)
    assert played == pytest.approx(ends, rel=0.005)


@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_blamed_in_a_healthy_job(seed: int, tmp_path: Path) -> None:
    """Noise of some percent is nobody's fault."""
    found = judge(trace_of(Job(noise=0.03), tmp_path, seed))
    assert found.suspects == []
    assert found.prices.slowdown == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("dp", "stage", "times"), [(0, 0, 2.0), (3, 3, 1.3), (2, 1, 1.5)])
def test_a_slow_worker_is_named_with_its_price(dp: int, stage: int, times: float, tmp_path: Path) -> None:
    """And mending it would give the healthy step."""
    slow = Job(cost=lambda d, s, b: times if (d, s) == (dp, stage) else 1.0)
    trace = trace_of(slow, tmp_path)
    (suspect,) = judge(trace).suspects
    rank = stage * 4 + dp
    assert (suspect.ranks, suspect.cause) == ([rank], "compute")
    healthy = lay_out(trace_of(Job(), tmp_path))
    now_s, then_s = what_if(trace, f"rank:{rank}")
    assert then_s == pytest.approx(healthy.play(healthy.moved_s).mean(), rel=0.03)
    assert suspect.slowdown == pytest.approx(now_s / then_s, rel=1e-6)
    assert rank not in judge(trace).victims


def test_a_heavy_stage_is_no_slow_worker(tmp_path: Path) -> None:
    """All workers of it are named, and the price is that of even work."""
    trace = trace_of(Job(cost=lambda d, s, b: 1.6 if s == 3 else 1.0), tmp_path)
    (suspect,) = judge(trace).suspects
    assert (suspect.ranks, suspect.cause) == ([12, 13, 14, 15], "stage_imbalance")


def test_two_slow_workers_are_two_suspects(tmp_path: Path) -> None:
    """The dearer first."""
    trace = trace_of(Job(cost=lambda d, s, b: {(0, 1): 2.0, (3, 2): 1.6}.get((d, s), 1.0)), tmp_path)
    assert judge(trace).suspects[0].ranks == [4]


def test_long_input_of_one_pipeline_is_not_blamed_on_a_worker(tmp_path: Path) -> None:
    """All its stages are slower alike."""
    trace = trace_of(Job(cost=lambda d, s, b: 1.5 if d == 2 else 1.0), tmp_path)
    (suspect,) = judge(trace).suspects
    assert (suspect.ranks, suspect.cause) == ([2, 6, 10, 14], "input_imbalance")


def test_uneven_micro_batches_are_the_input(tmp_path: Path) -> None:
    """Long ones are long at every stage, forward and backward."""
    lengths = np.random.default_rng(7).lognormal(0, 0.4, (4, 8))
    trace = trace_of(Job(cost=lambda d, s, b: float(lengths[d, b])), tmp_path)
    suspects = judge(trace).suspects
    assert {suspect.cause for suspect in suspects} == {"input_imbalance"}


def test_a_slow_link_is_named_by_its_ends(tmp_path: Path) -> None:
    """Between stage 1 and 2 of pipeline 3."""
    trace = trace_of(Job(slow_link=(3, 1)), tmp_path)
    suspects = judge(trace).suspects
    assert suspects
    assert {tuple(suspect.ranks) for suspect in suspects} == {(7, 11)}
    assert {suspect.cause for suspect in suspects} == {"link"}


def test_garbage_collection_is_named(tmp_path: Path) -> None:
    """By the pauses of those that have any, where the job waits for them."""
    trace = trace_of(Job(gc_s={(1, 0): 0.4}), tmp_path)
    (suspect,) = judge(trace).suspects
    assert (suspect.ranks, suspect.cause) == ([1], "garbage_collection")
    assert judge(trace_of(Job(gc_s={(1, 2): 0.4}), tmp_path)).suspects == []


def test_workers_that_are_not_in_the_trace_are_missing(tmp_path: Path) -> None:
    """Their ranks follow from those of the others; nobody is blamed for them."""
    rows = [row for row in draw(Job(), np.random.default_rng(0)) if row["rank"] != 6]
    found = judge(read_op_trace(write(rows, tmp_path / "trace.csv")))
    assert found.missing == [6]
    assert found.suspects == []


def test_a_step_that_was_cut_is_left_out(tmp_path: Path) -> None:
    """And told."""
    rows = draw(Job(), np.random.default_rng(0))[:-5]
    found = judge(read_op_trace(write(rows, tmp_path / "trace.csv")))
    assert (found.left_out, found.steps) == ([5], 5)


def test_columns_may_have_other_names_and_no_numbers(tmp_path: Path) -> None:
    """Without numbers of operations, their starts tell."""
    names = {"dp_rank": "dp", "optype": "op", "start_ts": "start_s", "duration": "duration_s"}
    rows = draw(Job(), np.random.default_rng(3))
    bare = [
        {names.get(name, name): value for name, value in row.items() if name not in ("seq_id", "rank")}
        for row in rows
    ]
    one = lay_out(read_op_trace(write(rows, tmp_path / "one.csv")))
    two = lay_out(read_op_trace(write(bare, tmp_path / "two.csv")))
    assert one.play(one.moved_s) == pytest.approx(two.play(two.moved_s))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no rows"),
        ("dp_rank,step\n1,2\n", "expected one called stage"),
        (HEADER + "0,0,0,gc,nan,1\n", "row 2: start_ts is nan, expected a finite number"),
        (HEADER + "0,0,0,gc,1,-1\n", "row 2: duration is -1, expected seconds from 0"),
        (HEADER + "0,-3,0,gc,1,1\n", "row 2"),
        (HEADER + "0,0,0,,1,1\n", "row 2: optype is empty"),
        (HEADER.replace("step,", "step,seq_id,") + "0,0,0,1,gc,1,1\n" * 2, "is there twice"),
        (HEADER + "0,0,0,gc\n", "row 2"),
    ],
)
def test_what_is_no_trace_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    """With the row and what was expected."""
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        judge(read_op_trace(path))
    assert str(path) in str(caught.value)


def test_diagnose_tells_slowdown_and_suspects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As JSON, in words, and as an answer to a what-if."""
    slow = Job(cost=lambda d, s, b: 2.0 if (d, s) == (1, 2) else 1.0)
    path = str(write(draw(slow, np.random.default_rng(0)), tmp_path / "trace.csv"))
    found = document(["diagnose", path], monkeypatch, capsys)
    assert found["slowdown"] > 1.3
    assert found["suspects"][0]["ranks"] == [9]
    assert found["missing"] == []
    assert 9 not in found["victims"]
    assert call(["diagnose", path], monkeypatch) == 0
    assert "rank 9: its compute is slow" in capsys.readouterr().out
    fixed = document(["diagnose", path, "--what-if", "fix=rank:9"], monkeypatch, capsys)
    assert fixed["fixed_s"] < 0.8 * fixed["step_s"]


@pytest.mark.parametrize("fix", ["rank:5", "fix=rank:99", "fix=banana:1", "fix="])
def test_what_cannot_be_fixed_is_refused(
    fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2."""
    path = str(write(draw(Job(steps=1), np.random.default_rng(0)), tmp_path / "trace.csv"))
    assert call(["diagnose", path, "--what-if", fix], monkeypatch) == 2
    assert "expected" in capsys.readouterr().err


@pytest.mark.external
@pytest.mark.parametrize(
    ("name", "slowdown", "ranks", "cause"),
    [("AR", 1.973, [0], "compute"), ("ST", 1.1787, [6, 7], "stage_imbalance")],
)
def test_real_traces_have_their_published_slowdown(
    name: str, slowdown: float, ranks: list[int], cause: str
) -> None:
    """ByteDance's: one slowed worker of 64 GPUs, and a last stage that is too heavy."""
    if not DATA.is_dir():
        pytest.skip("needs HOLDFAST_DATA")
    found = judge(read_op_trace(DATA / f"trace-{name}.parquet"))
    published = json.loads((DATA / f"result-{name}.json").read_text())
    assert found.prices.slowdown == pytest.approx(slowdown, rel=0.002)
    for part, prices in (("stage", found.prices.by_stage), ("dp_rank", found.prices.by_dp)):
        for number, value in published[f"blocking_decompose_by_{part}"].items():
            assert prices[int(number)] == pytest.approx(value, rel=0.002)
    (suspect,) = found.suspects
    assert (suspect.ranks, suspect.cause) == (ranks, cause)
