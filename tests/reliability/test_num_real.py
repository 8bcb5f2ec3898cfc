"""Rates of real records: failures of seven systems of Los Alamos National Laboratory, 1996 to 2005."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.reliability.outagerates import OutageRates, rates_of_outages
from holdfast.reliability.sources import read_any

DATA = Path(os.environ.get("HOLDFAST_DATA") or "/nowhere") / "failures"

pytestmark = pytest.mark.external


@pytest.fixture(scope="module")
def found() -> OutageRates:
    """The rates of the whole record."""
    if not DATA.is_dir():
        pytest.skip("needs HOLDFAST_DATA")
    which, reading = read_any(next(DATA.glob("lanl-*.csv")))
    assert (which, reading.broken) == ("outages", 0)
    return rates_of_outages(reading.table)


@pytest.mark.parametrize(
    ("system", "nodes", "rate"), [("20", 512, 3.56), ("4", 128, 3.36), ("5", 128, 3.45), ("13", 256, 1.18)]
)
def test_rates_of_real_systems(system: str, nodes: int, rate: float, found: OutageRates) -> None:
    """All failures per 1000 node-days."""
    one = found.systems[system]
    assert one.nodes == nodes
    assert one.rate.per_1000_node_days == pytest.approx(rate, abs=0.006)


def test_largest_real_system_in_full(found: OutageRates) -> None:
    """System 20: interval, days, hardware alone, and its front end, which has 118 failures."""
    one = found.systems["20"]
    assert one.days == pytest.approx(1358, abs=1)
    assert [one.rate.low, one.rate.high] == pytest.approx([3.45, 3.68], abs=0.011)
    assert one.hardware.per_1000_node_days == pytest.approx(2.48, abs=0.011)
    assert one.front_end is not None
    assert one.others is not None
    assert one.front_end.failures == 118
    assert (one.others.per_1000_node_days or 0) == pytest.approx(3.40, abs=0.006)


def test_real_nodes_are_not_alike(found: OutageRates) -> None:
    """Variance over mean is 6.3 in system 20 without its front end: the Poisson interval is too narrow."""
    one = found.systems["20"]
    assert one.scatter is not None
    assert one.scatter.ratio == pytest.approx(6.3, abs=0.05)
    assert one.scatter.is_too_wide
    assert one.rate.wide_low < one.rate.low < one.rate.high < one.rate.wide_high


def test_every_real_system_has_a_rate(found: OutageRates) -> None:
    """Seven of them; small old ones fail more than ten times as often as large ones."""
    rates = {name: each.rate.per_1000_node_days for name, each in found.systems.items()}
    assert list(rates) == ["4", "5", "8", "13", "16", "20", "23"]
    assert all(rate is not None and rate > 1 for rate in rates.values())
    assert found.whole.rate.failures == sum(each.rate.failures for each in found.systems.values()) == 7002


def test_causes_of_the_real_record(found: OutageRates) -> None:
    """Hardware is more than half and software a quarter; they add up to one."""
    causes = found.whole.causes
    assert causes["Hardware"] == pytest.approx(0.529, abs=0.001)
    assert causes["Software"] == pytest.approx(0.256, abs=0.001)
    assert sum(causes.values()) == pytest.approx(1)
    assert next(iter(found.whole.details)) == "CPU"
