"""Seeds follow from the work, and the script's own random numbers are left alone."""

from __future__ import annotations

import itertools

import pytest
import torch

from holdfast.job.randomness import own_randomness, seed_device, seed_of

CPU = torch.device("cpu")


def test_no_two_pieces_of_work_share_a_seed() -> None:
    """Step, pipeline, micro-batch and stage, in their order, make different seeds of 63 bits."""
    seeds = {seed_of(0, *each) for each in itertools.product(range(20), range(4), range(16), range(4))}
    assert len(seeds) == 20 * 4 * 16 * 4
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    assert seed_of(1, 2) != seed_of(2, 1)
    assert seed_of(0) != seed_of(0, 0)


def test_seed_is_a_promise() -> None:
    """A checkpoint of today is continued by tomorrow's version with the same dropout."""
    assert [seed_of(0, 0), seed_of(1, 2, 3)] == [6017775124710473527, 3851293329796251419]


def test_same_seed_draws_the_same() -> None:
    """Whatever was drawn before."""
    seed_device(CPU, 5)
    first = torch.rand(3)
    torch.rand(1)
    seed_device(CPU, 5)
    assert torch.equal(torch.rand(3), first)


def test_script_draws_as_if_nothing_had_happened() -> None:
    """The generator is given back as it was, also by work that fails."""
    torch.manual_seed(1)
    expected = torch.rand(4)
    torch.manual_seed(1)
    found = [torch.rand(1)]
    with own_randomness(CPU):
        seed_device(CPU, 9)
        torch.rand(100)
    found.append(torch.rand(1))
    with pytest.raises(RuntimeError, match="shape"), own_randomness(CPU):
        torch.rand(7).view(2, 2)
    found.append(torch.rand(2))
    assert torch.equal(torch.cat(found), expected)
