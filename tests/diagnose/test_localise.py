"""Who is named from the patterns of all workers: the guilty, no victims, no role, nobody for noise."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.diagnose.localise import Finding, localise
from holdfast.diagnose.patterns import Patterns
from holdfast.diagnose.unlike import Floors, Roles, limit
from patterned.made import Made, make

WORKERS = 1600


def job(fault: str, severity: float, seed: int, workers: int = WORKERS) -> Made:
    """Patterns of a job that something is wrong with."""
    return make(workers, fault, severity, np.random.default_rng([seed, 3]))


def named(made: Made) -> list[Finding]:
    """What is found in them."""
    return localise(made.patterns, made.roles)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("workers", [8, 64, WORKERS])
def test_healthy_jobs_with_roles_are_left_alone(seed: int, workers: int) -> None:
    """Few workers or many."""
    assert named(job("healthy", 0.0, seed, workers)) == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("fault", "what", "kind"),
    [
        ("throttled", "longer", "compute"),
        ("stalled", "longer", "python"),
        ("copies", "longer", "memory"),
        ("nic", "slower network", "collective"),
        ("group", "slower network", "collective"),
        ("uneven", "uneven", "compute"),
        ("storage", "common", "python"),
    ],
)
def test_the_guilty_are_named_and_nobody_else(fault: str, what: str, kind: str, seed: int) -> None:
    """Each fault by what it is, on exactly those that have it."""
    made = job(fault, 0.15, seed)
    found = named(made)
    assert {(each.what, each.kind) for each in found} == {(what, kind)}
    assert {rank for each in found for rank in each.ranks} == made.guilty


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_device_is_told_from_more_work_by_its_use(seed: int) -> None:
    """A throttled one does less at a time; a rank with more input does as much, for longer."""
    (throttled,) = named(job("throttled", 0.15, seed))
    assert throttled.use is not None
    assert throttled.use < 0.9
    made = job("healthy", 0.0, seed)
    rows = [row for row, kind in enumerate(made.patterns.kinds) if kind == "compute"]
    made.patterns.beta[rows, 5] *= 1.3
    (more,) = named(made)
    assert more.ranks == [int(made.patterns.ranks[5])]
    assert more.use == pytest.approx(1, abs=0.05)


def test_victims_of_a_guilty_one_that_is_missing_are_not_blamed() -> None:
    """All of them wait by fits and starts, and whom for is not in the data."""
    made = job("nic", 0.15, 0)
    kept = ~np.isin(made.patterns.ranks, list(made.guilty))
    patterns = made.patterns
    rest = type(patterns)(
        names=patterns.names,
        kinds=patterns.kinds,
        ranks=patterns.ranks[kept],
        beta=patterns.beta[:, kept],
        mu=patterns.mu[:, kept],
        sigma=patterns.sigma[:, kept],
    )
    assert localise(rest, made.roles[kept]) == []


def test_without_roles_a_role_looks_like_a_fault_or_like_nothing_but_not_like_one_worker() -> None:
    """Whoever has roles should tell them."""
    made = job("healthy", 0.0, 1)
    assert all(len(each.ranks) > 100 for each in localise(made.patterns))


def test_the_limit_knows_heavy_tails_by_their_other_side() -> None:
    """What chance does on one side it may do on the other; many at once are believed earlier than one."""
    rng = np.random.default_rng(0)
    light = rng.standard_normal(5000).astype(np.float32)
    heavy = rng.standard_t(3, 5000).astype(np.float32)
    assert limit([light]) == pytest.approx(8, abs=1)
    assert limit([heavy]) > 2 * limit([light])
    many = np.concatenate([heavy, np.full(1000, 12.0, np.float32)])
    assert limit([many]) <= 12 < limit([np.append(heavy, np.float32(12.0))])
    assert limit([-light], bad_side=-1) == pytest.approx(limit([light]))


def test_a_scale_does_not_fall_below_what_can_be_measured() -> None:
    """Values that are all the same make no giant of a tiny difference; who is alone differs from nobody."""
    roles = Roles(np.array([0] * 10 + [1]))
    values = np.array([0.5] * 9 + [0.501] + [0.9], np.float32)
    found = roles.residuals(values, Floors(0.002, 0.01))
    assert 0 < found.score[9] < 0.2
    assert found.score[10] == 0.0


@pytest.mark.parametrize("bad_side", [1, -1])
def test_half_of_a_few_may_have_the_same_fault(bad_side: int) -> None:
    """What is usual is then what the better half does, on whichever side faults show."""
    values = bad_side * np.array([0.1, 0.4, 0.1, 0.4], np.float32)
    found = Roles(np.zeros(4, np.int64)).residuals(values, Floors(0.002, 0.01), bad_side=bad_side)
    assert found.usual.tolist() == pytest.approx([bad_side * 0.1] * 4)
    assert (bad_side * found.score > 8).tolist() == [False, True, False, True]


def test_who_waits_for_a_late_rank_has_no_slow_network() -> None:
    """Half of a small job copies too much; the other half is in its collective meanwhile."""
    patterns = Patterns(
        names=["copy", "all_reduce"],
        kinds=["memory", "collective"],
        ranks=np.arange(4),
        beta=np.array([[0.25, 0.25, 0.0, 0.0], [0.08, 0.08, 0.34, 0.35]], np.float32),
        mu=np.array([[1.0] * 4, [0.6, 0.6, 0.35, 0.36]], np.float32),
        sigma=np.zeros((2, 4), np.float32),
    )
    found = localise(patterns)
    assert [(finding.kind, finding.ranks) for finding in found] == [("memory", [0, 1])]


@pytest.mark.parametrize(("collector", "expected"), [(0.3, ["python"]), (0.075, ["collective", "python"])])
def test_who_waits_for_pauses_of_all_has_no_slow_network(collector: float, expected: list[str]) -> None:
    """Pauses that come at different times make everybody wait in turn; short ones explain little of it."""
    patterns = Patterns(
        names=["Python GC", "all_reduce"],
        kinds=["python", "collective"],
        ranks=np.arange(4),
        beta=np.array([[collector] * 4, [0.66] * 4], np.float32),
        mu=np.array([[1.0] * 4, [0.5] * 4], np.float32),
        sigma=np.zeros((2, 4), np.float32),
    )
    assert sorted(finding.kind for finding in localise(patterns)) == expected


@pytest.mark.parametrize(("collector", "expected"), [(0.45, ["Python GC"]), (0.12, ["Python GC", "make"])])
def test_what_hardly_costs_anything_beside_the_dearest_is_not_told(
    collector: float, expected: list[str]
) -> None:
    """A function that all spend 7 % on, where 5 % are expected, is worth a word beside little else."""
    patterns = Patterns(
        names=["Python GC", "make"],
        kinds=["python", "python"],
        ranks=np.arange(4),
        beta=np.array([[collector] * 4, [0.07] * 4], np.float32),
        mu=np.ones((2, 4), np.float32),
        sigma=np.zeros((2, 4), np.float32),
    )
    assert [finding.function for finding in localise(patterns)] == expected
