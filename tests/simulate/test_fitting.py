"""Nodes become workers: by name where the numbers agree, else by share or by clipping."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.simulate.fitting import Change, Fitted, Rule, fit
from holdfast.simulate.traces import NodeChange, Trace, make_fixed, make_poisson


def trace_of(nodes: str, *changes: tuple[float, str, bool]) -> Trace:
    """A trace of nodes with names of one letter."""
    return Trace(
        nodes=tuple(nodes),
        changes=tuple(NodeChange(*change) for change in changes),
        duration_s=100.0,
        origin="test",
    )


def check(fitted: Fitted) -> list[int]:
    """Follow the changes, and return how many are alive after each; nobody leaves or comes twice."""
    live = set(fitted.live)
    counts = []
    for change in fitted.changes:
        assert set(change.left) <= live
        live -= set(change.left)
        assert not set(change.came) & live
        live |= set(change.came)
        assert live <= set(range(fitted.workers))
        counts.append(len(live))
    assert [change.at_s for change in fitted.changes] == sorted({change.at_s for change in fitted.changes})
    return counts


def test_names_are_kept_when_the_numbers_agree() -> None:
    """The node that comes takes the place of the one that left."""
    fitted = fit(trace_of("ab", (1, "a", False), (5, "c", True)), 2, random.Random(0))
    assert fitted.live == (0, 1)
    (place,) = fitted.changes[0].left
    assert fitted.changes == (Change(at_s=1, left=(place,)), Change(at_s=5, came=(place,)))
    assert fitted.failures == 1
    assert fitted.mtbf_s == 100.0


def test_changes_at_one_time_are_one_change() -> None:
    """Two nodes lost together are one loss of two workers."""
    fitted = fit(trace_of("abc", (1, "a", False), (1, "c", False)), 3, random.Random(0))
    assert [len(change.left) for change in fitted.changes] == [2]
    assert (fitted.failures, fitted.mtbf_s) == (2, 100.0)


def test_clipped_trace_replaces_who_leaves_with_who_waits() -> None:
    """Of three nodes two work; when one of them leaves, the third takes its place at once."""
    trace = trace_of("ab", (0.5, "c", True), (1, "a", False), (2, "b", False), (3, "c", False))
    fitted = fit(trace, 2, random.Random(0), "clip")
    assert "clip" in fitted.rule
    assert check(fitted)[-1] == 0
    replaced = fitted.changes[0]
    assert replaced.left == replaced.came


def test_shares_are_rounded_halves_up() -> None:
    """Of up to 4 nodes as 2 workers, 3 are 2 workers and 1 is one."""
    trace = trace_of("abcd", (1, "a", False), (2, "b", False), (3, "c", False), (4, "d", False))
    fitted = fit(trace, 2, random.Random(0))
    assert [(change.at_s, len(change.left)) for change in fitted.changes] == [(2, 1), (4, 1)]
    assert "each worth 0.5 of 2 workers" in fitted.rule


@given(
    seed=st.integers(0, 10_000),
    nodes=st.integers(1, 40),
    workers=st.integers(1, 40),
    rule=st.sampled_from(["share", "clip"]),
)
def test_any_trace_fits_any_number_of_workers(seed: int, nodes: int, workers: int, rule: Rule) -> None:
    """Only live workers leave, only absent ones come, and the same seed gives the same workers."""
    trace = make_poisson(
        nodes=nodes, per_node_day=8, repair_s=3000, duration_s=86_400, rng=random.Random(seed)
    )
    fitted = fit(trace, workers, random.Random(seed), rule)
    check(fitted)
    assert fitted == fit(trace, workers, random.Random(seed), rule)


@given(seed=st.integers(0, 1000), factor=st.integers(1, 4))
def test_share_scales_a_trace_exactly_when_it_divides(seed: int, factor: int) -> None:
    """With k workers for each node, each lost node takes k workers with it."""
    trace = make_fixed(nodes=8, every_s=60, rng=random.Random(seed))
    fitted = fit(trace, 8 * factor, random.Random(seed))
    assert check(fitted) == [factor * (8 - lost) for lost in range(1, 5)]


def test_trace_without_nodes_is_refused() -> None:
    """There is nobody to be a worker."""
    with pytest.raises(InputError, match="no nodes at any time"):
        fit(trace_of(""), 4, random.Random(0))
