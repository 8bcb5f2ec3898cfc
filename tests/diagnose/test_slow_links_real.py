"""Slow links of real jobs are named from the kernel's counters, and a slow rank is not taken for one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.detect.links import LinkRate, LinkSnapshot, link_rates
from holdfast.diagnose.links import SlowLink, find_slow_links
from holdfast.faults import Fault
from holdfast.lab.fork import Job, Lab, Result
from holdfast.lab.injectors import namespaces

pytestmark = [pytest.mark.processes, pytest.mark.alone]
NIC_BYTES_S = 150e6
LINK = Fault(kind="slow_link", target=(0, 1), at_step=24, for_steps=8, severity=4.0)
NIC = Fault(kind="slow_nic", target=2, at_step=35, for_steps=8, severity=4.0)
LATE = Fault(kind="gc_storm", target=1, at_step=46, for_steps=9, severity=0.1)
STEPS = 56


@pytest.fixture(scope="module")
def ring_lab() -> Iterator[Lab]:
    """A lab whose workers can import the job beside this file."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *([before] if before else [])])
    with Lab() as lab:
        yield lab
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(
    scope="module", params=["pacing", pytest.param("namespace", marks=pytest.mark.root)], ids=lambda via: via
)
def looks(ring_lab: Lab, request: pytest.FixtureRequest) -> list[list[LinkSnapshot]]:
    """The snapshots of four ranks, through a slow link, a slow NIC and a slow rank."""
    in_namespaces = request.param == "namespace"
    is_available, detail = namespaces.available()
    if in_namespaces and not is_available:
        assert os.environ.get("CI") != "true", detail
        pytest.skip(detail)
    job = Job(
        module="ringjob",
        ranks=4,
        args=[str(STEPS)],
        nic_bytes_s=NIC_BYTES_S,
        in_namespaces=in_namespaces,
    )
    result = ring_lab.run(job, [LINK, NIC, LATE])
    assert result.exit_codes == [0] * 4, result.logs
    assert [event.via for event in result.events if event.type == "begin"][:2] == [request.param] * 2
    return [_snapshots(result, rank) for rank in range(4)]


def _snapshots(result: Result, rank: int) -> list[LinkSnapshot]:
    lines = [line for line in result.logs[rank].splitlines() if line.startswith("{")]
    return [msgspec.json.decode(line, type=LinkSnapshot) for line in lines]


def _rates(looks: list[list[LinkSnapshot]], first: int, last: int) -> list[LinkRate]:
    """Return the rates within some steps, the first and last snapshots of which are those of each rank."""
    within = [[each for each in rank if first < each.steps <= last] for rank in looks]
    return link_rates([rank[0] for rank in within], [rank[-1] for rank in within])


def _find(looks: list[list[LinkSnapshot]], fault: Fault, *, is_known: bool = True) -> list[SlowLink]:
    assert fault.for_steps is not None
    # The step in which a fault begins is part of both times, and so is the one in which it ends.
    now = _rates(looks, fault.at_step + 1, fault.at_step + fault.for_steps)
    return find_slow_links(now, _rates(looks, 2, LINK.at_step) if is_known else None)


@pytest.mark.parametrize("is_known", [True, False], ids=["healthy rates", "no healthy rates"])
def test_the_slow_link_of_a_ring_is_named(looks: list[list[LinkSnapshot]], is_known: bool) -> None:
    """Of the two directions that were slowed down, the ring uses the one from rank 1 to rank 0."""
    (found,) = _find(looks, LINK, is_known=is_known)
    assert (found.kind, found.link) == ("link", (1, 0))
    assert found.slowdown > 2.0


@pytest.mark.parametrize("is_known", [True, False], ids=["healthy rates", "no healthy rates"])
def test_the_slow_nic_of_a_ring_is_named(looks: list[list[LinkSnapshot]], is_known: bool) -> None:
    """What the rank sends and what it receives is slow."""
    (found,) = _find(looks, NIC, is_known=is_known)
    assert (found.kind, found.ranks) == ("nic", [2])
    assert found.slowdown > 2.0


@pytest.mark.parametrize("is_known", [True, False], ids=["healthy rates", "no healthy rates"])
def test_a_rank_that_comes_late_has_no_slow_link(looks: list[list[LinkSnapshot]], is_known: bool) -> None:
    """Those who send to it wait, but not for a link."""
    assert _find(looks, LATE, is_known=is_known) == []


def test_a_healthy_ring_has_no_slow_link(looks: list[list[LinkSnapshot]]) -> None:
    """Neither against the others nor against what it was before."""
    earlier, later = _rates(looks, 2, 13), _rates(looks, 13, LINK.at_step)
    assert find_slow_links(later, None) == []
    assert find_slow_links(later, earlier) == []


def test_all_links_of_the_ring_are_seen_at_both_ends(looks: list[list[LinkSnapshot]]) -> None:
    """Each rank sends to one other, and about the same amount."""
    rates = [each for each in _rates(looks, 2, LINK.at_step) if each.rate_bytes_s is not None]
    assert [(each.source, each.target) for each in rates] == [(0, 3), (1, 0), (2, 1), (3, 2)]
