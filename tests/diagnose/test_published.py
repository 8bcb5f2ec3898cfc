"""EROICA's rule as published, its known flaws included: they are why ours is another."""

from __future__ import annotations

import numpy as np

from holdfast.diagnose.patterns import Patterns
from holdfast.diagnose.published import differing, find_abnormal

RNG = np.random.default_rng


def patterns(rng: np.random.Generator, *, workers: int = 3400, kind: str = "compute") -> Patterns:
    """One function of healthy workers, with the noise of the facts' experiment."""
    beta = rng.normal(0.1, 0.003, (1, workers))
    mu = rng.normal(0.8, 0.01, (1, workers))
    sigma = rng.normal(0.01, 0.005, (1, workers)).clip(0)
    return Patterns(
        names=["f"],
        kinds=[kind],  # type: ignore[list-item]
        ranks=np.arange(workers),
        beta=beta.astype(np.float32),
        mu=mu.astype(np.float32),
        sigma=sigma.astype(np.float32),
    )


def test_distance_counts_how_many_are_far_not_how_far() -> None:
    """One of a hundred is unlike all others; the others are unlike one."""
    points = np.zeros((3, 100), np.float32)
    points[0, 7] = 1.0
    found = differing(points, RNG(0))
    assert found[7] == np.float32(0.99)
    assert set(np.delete(found, 7).tolist()) == {float(np.float32(0.01))}


def test_a_slow_worker_is_abnormal() -> None:
    """Three times the share of the time at a third of the speed."""
    healthy = patterns(RNG(0), workers=500)
    healthy.sigma[:] = 0.01
    healthy.beta[0, 42], healthy.mu[0, 42] = 0.3, 0.3
    assert np.flatnonzero(find_abnormal(healthy, RNG(1))[0]).tolist() == [42]


def test_what_its_kind_may_not_take_is_abnormal_everywhere() -> None:
    """A Python function with a tenth of the time, on every worker."""
    assert find_abnormal(patterns(RNG(0), workers=50, kind="python"), RNG(1)).all()


def test_what_takes_no_time_is_never_abnormal() -> None:
    """However unlike the others it is."""
    quiet = patterns(RNG(0), workers=200)
    quiet.beta[:] = 0.005
    quiet.mu[0, 3] = 0.0
    assert not find_abnormal(quiet, RNG(1)).any()


def test_noise_of_the_spread_makes_it_see_ghosts() -> None:
    """The facts count about a hundred false ones of 3,400 healthy workers."""
    flagged = int(find_abnormal(patterns(RNG(0)), RNG(1)).sum())
    assert 20 < flagged < 400


def test_roles_are_mistaken_for_faults() -> None:
    """A quarter of the workers is a healthy last stage; all of them are flagged."""
    mixed = patterns(RNG(0))
    mixed.sigma[:] = 0.01
    mixed.beta[0, :850] += 0.1
    found = find_abnormal(mixed, RNG(1))[0]
    assert found[:850].all()
