"""Exact sums are the same bits whoever added what, and as good as a sum can be."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from holdfast.job.sums import ExactSum, FloatSum, exponents_of
from summing import Gradients, Meeting, bits, parameters_like, reduce_over, sum_twice

floats = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100)
rows = st.lists(st.lists(floats, min_size=3, max_size=3), min_size=2, max_size=8)


@given(rows=rows, places=st.lists(st.integers(0, 2), min_size=8, max_size=8), order=st.permutations(range(8)))
def test_bits_do_not_depend_on_who_adds_what(
    rows: list[list[float]], places: list[int], order: list[int]
) -> None:
    """Any split over three workers, in any order, gives the bits that one worker gets."""
    gradients: Gradients = [[torch.tensor(row)] for row in rows]
    exponents = exponents_of([max(abs(x) for row in rows for x in row)], bits=51)
    whole = reduce_over([gradients], exponents)
    shares: list[Gradients] = [[], [], []]
    for index in order:
        if index < len(gradients):
            shares[places[index]].append(gradients[index])
    split = reduce_over(shares, exponents)
    assert bits(split.gradients) == bits(whole.gradients)
    assert (split.overflowed, split.magnitudes) == (whole.overflowed, whole.magnitudes)


@given(rows=rows)
def test_sum_is_the_rational_sum_of_gradients_rounded_to_the_grid(rows: list[list[float]]) -> None:
    """Every gradient is rounded to a multiple of the grid, and from there on nothing is lost."""
    gradients: Gradients = [[torch.tensor(row)] for row in rows]
    reduced, sums = sum_twice(gradients)
    assert sums.exponents is not None
    grid = Fraction(2) ** sums.exponents[0]
    columns = [[Fraction(float(row[0][i])) for row in gradients if row[0] is not None] for i in range(3)]
    exact = [sum(round(value / grid) * grid for value in column) for column in columns]
    assert reduced.gradients[0] is not None
    assert reduced.gradients[0].tolist() == [float(torch.tensor(float(each))) for each in exact]
    assert not reduced.overflowed


@given(rows=rows)
def test_error_is_far_below_the_largest_magnitude(rows: list[list[float]]) -> None:
    """A double-precision sum differs by less than 2**-40 of the largest value, per micro-batch."""
    gradients: Gradients = [[torch.tensor(row, dtype=torch.float64)] for row in rows]
    reduced, _ = sum_twice(gradients)
    plain = torch.tensor([math.fsum(column) for column in zip(*rows, strict=True)], dtype=torch.float64)
    largest = max(abs(x) for row in rows for x in row)
    assert reduced.gradients[0] is not None
    error = float((reduced.gradients[0] - plain).abs().max())
    assert error <= largest * len(rows) * 2.0**-40


@pytest.mark.parametrize("size", [1e-30, 1.4e-45, 1e-38, 1.0, 3e37])
def test_tiny_and_huge_gradients_are_summed_to_the_last_bit(size: float) -> None:
    """Three equal gradients give three times as much, denormal numbers included."""
    gradient = torch.full((4,), size)
    reduced, _ = sum_twice([[gradient], [gradient], [gradient]])
    assert reduced.gradients[0] is not None
    assert reduced.gradients[0].tolist() == (gradient.double() * 3).float().tolist()


def test_spread_inside_a_tensor_loses_only_what_the_grid_cannot_hold() -> None:
    """Beside a value of 1, what is larger than 2**-43 stays, and 2**-60 is gone."""
    reduced, _ = sum_twice([[torch.tensor([1.0, 2.0**-41, 2.0**-60])]])
    assert reduced.gradients[0] is not None
    assert reduced.gradients[0].tolist() == [1.0, 2.0**-41, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("worker", [0, 1])
def test_what_is_not_finite_makes_the_norm_infinite_and_is_no_overflow(bad: float, worker: int) -> None:
    """One bad value on one worker is seen by all, and no other grid is asked for."""
    shares: list[Gradients] = [[[torch.ones(2)]], [[torch.ones(2)]]]
    shares[worker].append([torch.tensor([1.0, bad])])
    reduced = reduce_over(shares, [-40])
    assert reduced.square() == math.inf
    assert not reduced.overflowed


def test_value_that_does_not_fit_is_an_overflow_and_the_next_grid_fits() -> None:
    """After an overflow the tensor that caused it gets another grid, and the others keep theirs."""
    gradients: Gradients = [[torch.ones(2), torch.full((2,), 1000.0)], [torch.ones(2), torch.ones(2)]]
    exponents = exponents_of([1.0, 1.0], bits=51)
    reduced = reduce_over([gradients], exponents)
    assert reduced.overflowed
    parameters = parameters_like(gradients[0])
    sums = ExactSum(parameters, terms=2)
    retry = sums.exponents_for(reduced)
    assert retry[0] == exponents[0]
    assert retry[1] > exponents[1]
    again = reduce_over([gradients], retry)
    assert not again.overflowed
    assert [each.tolist() for each in again.gradients if each is not None] == [[2.0, 2.0], [1001.0, 1001.0]]


def test_value_at_the_very_limit_fits_or_is_an_overflow() -> None:
    """The limit itself is an overflow; the largest float below it is summed right, with either sign."""
    below = math.nextafter(2.0**11, 0.0)
    for sign in (1.0, -1.0):
        gradients: Gradients = [[torch.tensor([sign * below], dtype=torch.float64)] for _ in range(4)]
        reduced = reduce_over([gradients], [11 - 51])
        assert not reduced.overflowed
        assert reduced.gradients[0] is not None
        assert reduced.gradients[0].item() == pytest.approx(sign * 4 * below, rel=2.0**-48)
    assert reduce_over([[[torch.tensor([2.0**11])]]], [11 - 51]).overflowed


def test_many_terms_of_full_size_do_not_leave_64_bits() -> None:
    """With more terms each may use fewer bits, so that thousands of the largest value can be added."""
    terms = 1 << 14
    parameter = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    sums = ExactSum([parameter], terms=terms)
    sums.exponents = sums.exponents_after([1.0])
    for _ in range(terms):
        parameter.grad = torch.tensor([255.0], dtype=torch.float64)
        sums.add()
    reduced = sums.reduce(Meeting(1))  # type: ignore[arg-type]
    assert not reduced.overflowed
    assert reduced.gradients[0] is not None
    assert reduced.gradients[0].item() == 255.0 * terms


def test_unused_parameter_has_no_gradient_and_a_zero_gradient_is_one() -> None:
    """None on all workers stays None; None on one and zero on another is zero."""
    shares: list[Gradients] = [[[None, None, torch.ones(1)]], [[None, torch.zeros(1), torch.ones(1)]]]
    reduced = reduce_over(shares, [-40, -40, -40])
    assert reduced.gradients[0] is None
    assert [each.tolist() for each in reduced.gradients[1:] if each is not None] == [[0.0], [2.0]]


def test_tensor_of_zeros_gets_the_grid_of_the_largest() -> None:
    """Zeros and unused tensors say nothing about a grid."""
    grids = exponents_of([0.0, -1.0, 4.0, math.inf], bits=51)
    assert grids == [grids[2]] * 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["exact", "float"])
def test_gradient_has_the_type_of_its_parameter(dtype: torch.dtype, kind: str) -> None:
    """What is summed over several workers can be given to the parameter, whatever its type."""
    parameter = nn.Parameter(torch.zeros(3, dtype=dtype))
    sums: Any = FloatSum([parameter])
    if kind == "exact":
        sums = ExactSum([parameter], terms=2)
        sums.exponents = [-40]
    parameter.grad = torch.full((3,), 1.5, dtype=dtype)
    sums.add()
    reduced = sums.reduce(Meeting(2))
    parameter.grad = reduced.gradients[0]
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [1.5] * 3


def test_gradient_of_no_elements_is_summed() -> None:
    """A parameter without elements is no reason to fail."""
    reduced, _ = sum_twice([[torch.ones(0), torch.ones(2)]])
    assert reduced.gradients[0] is not None
    assert reduced.gradients[0].shape == (0,)


@pytest.mark.parametrize("size", [1e301, 1e306, 1.7e308])
def test_double_that_no_grid_holds_counts_as_infinite(size: float) -> None:
    """A step with such a gradient is skipped, rather than tried for ever or failed."""
    reduced, _ = sum_twice([[torch.tensor([size], dtype=torch.float64)]])
    assert reduced.square() == math.inf
    assert not reduced.overflowed


def test_wrapped_integers_come_back() -> None:
    """The constants of many additions leave 64 bits by far, and take nothing with them."""
    parameter = nn.Parameter(torch.zeros(2))
    sums = ExactSum([parameter], terms=8)
    sums.exponents = [-40]
    for value in (1.0, -1.0, 0.5, -0.25, 1.0, 1.0, -2.0):
        parameter.grad = torch.tensor([value, -value])
        sums.add()
    reduced = sums.reduce(Meeting(1))  # type: ignore[arg-type]
    assert reduced.gradients[0] is not None
    assert reduced.gradients[0].tolist() == [0.25, -0.25]


def test_clear_forgets_everything() -> None:
    """After clear a sum is as new: nothing of what was added is left, also no magnitude."""
    parameter = nn.Parameter(torch.zeros(2))
    sums = ExactSum([parameter], terms=8)
    sums.exponents = [-40]
    parameter.grad = torch.full((2,), math.nan)
    sums.add()
    sums.clear()
    parameter.grad = torch.ones(2)
    sums.add()
    reduced = sums.reduce(Meeting(1))  # type: ignore[arg-type]
    assert reduced.gradients[0] is not None
    assert reduced.gradients[0].tolist() == [1.0, 1.0]
    assert reduced.magnitudes == [1.0]
