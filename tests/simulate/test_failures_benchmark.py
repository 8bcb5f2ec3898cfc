"""The tables of ``benchmarks/failures.py``: complete rows, honest marks, peers as their authors have them."""

from __future__ import annotations

import pytest
from rich.progress import Progress

import failures
from holdfast.simulate.models import BERT_LARGE, GPT3_6_7B


@pytest.fixture
def bench() -> failures.Bench:
    """A small sample, without a progress bar."""
    return failures.Bench(seeds=1, is_quick=True, bar=Progress(disable=True))


def test_row_has_every_strategy_and_the_ratios(bench: failures.Bench) -> None:
    """The ratio is that of the shares beside it, and the mark agrees with them."""
    case = failures.Case(model=BERT_LARGE, microbatches=8, memory=None, trace="10 min")
    row = failures.frequency_row(bench, case, "bamboo")
    names = [name for key, name in failures.NAMES.items() if key != "oobleck-measured"]
    assert all(0 < row[name] < 1.2 for name in names)
    assert row["x bamboo"] == pytest.approx(row["holdfast"] / row["bamboo"])
    assert (row["line"] == "above") == (row["holdfast"] >= row["scaled"])
    assert (row["M"], row["memory"], row["lost_every"]) == (8, "none", "10 min")


@pytest.mark.parametrize(
    ("microbatches", "memory", "reason"), [(64, 8, "M"), (16, 8, "memory"), (16, None, "whole numbers")]
)
def test_reason_for_being_below_the_line(microbatches: int, memory: int | None, reason: str) -> None:
    """Too many micro-batches come first, then memory, then that micro-batches cannot be divided."""
    assert failures.why_below(GPT3_6_7B, microbatches, memory) == reason


def test_scale_row_is_a_snapshot() -> None:
    """One of 32 groups dead: peers run by their share of nodes, and we share what cannot be divided."""
    row = failures.scale_row(("256 GPUs, TP 8", 1, 32, 32), None, 0.01)
    assert row["dead"] == "1 (1%)"
    assert row["scaled"] == pytest.approx(31 / 32)
    assert row["drop"] == pytest.approx(31 / 32)
    assert row["oobleck"] == pytest.approx(31 / 32)
    assert row["holdfast"] == pytest.approx(32 / 34), "1,024 micro-batches on 31 workers are 34 at most"


def test_scaled_model_keeps_every_share() -> None:
    """Twice the workers, twice the throughput, the same share of it with the same share of nodes."""
    model = failures.scaled_model(2, 32)
    assert model.throughput == pytest.approx(2 * GPT3_6_7B.throughput)
    assert model.oobleck.at(48) / model.throughput == pytest.approx(
        GPT3_6_7B.oobleck.at(24) / GPT3_6_7B.throughput
    )


def test_oobleck_is_within_two_percent_of_its_artifact() -> None:
    """In every row of the check table."""
    for row in failures.check_table().rows:
        assert row["oobleck"] == pytest.approx(row["oobleck_artifact"], rel=0.02)


def test_cases_leave_out_spot_traces_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """And have both numbers of micro-batches, with and without a memory cap."""
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    whole = failures.Bench(seeds=1, is_quick=False, bar=Progress(disable=True))
    cases = failures.cases_of(whole, GPT3_6_7B)
    assert {case.trace for case in cases} == set(failures.FREQUENCIES)
    assert {(case.microbatches, case.memory) for case in cases} == {(16, 8), (16, None), (64, 8), (64, None)}
