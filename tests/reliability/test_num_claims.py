"""Published figures on failures and ETTR: those that follow from the formulas, and those that do not."""

from __future__ import annotations

import msgspec
import pytest

from conditions import RSC_1, RSC_2, job
from holdfast.reliability.ettr import Conditions, closed_form, daly_young_min, mttf_hours, nodes_of


@pytest.mark.parametrize(
    ("gpus", "first", "second"),
    [
        (8, 3692, 10256),
        (256, 115.4, 320.5),
        (512, 57.7, 160.3),
        (1024, 28.8, 80.1),
        (2048, 14.4, 40.1),
        (4096, 7.21, 20.0),
        (8192, 3.61, 10.0),
        (16384, 1.803, 5.01),
        (32768, 0.901, 2.50),
        (65536, 0.451, 1.25),
        (100_000, 0.295, 0.821),
        (131_072, 0.225, 0.626),
    ],
)
def test_mttf_is_projected_from_the_rates_of_both_clusters(gpus: int, first: float, second: float) -> None:
    """Hours to failure of jobs on RSC-1 and RSC-2; 1.8 h at 16,384 and 0.23 h at 131,072 were published."""
    nodes = nodes_of(gpus)
    assert float(mttf_hours(nodes, RSC_1)) == pytest.approx(first, rel=2.5e-3)
    assert float(mttf_hours(nodes, RSC_2)) == pytest.approx(second, rel=2.5e-3)


def test_jobs_take_whole_nodes() -> None:
    """9 GPUs need two nodes of 8."""
    assert nodes_of([1, 8, 9, 100_000]).tolist() == [1, 1, 2, 12_500]


@pytest.mark.parametrize(
    ("conditions", "value", "published"),
    [
        (job(2000, RSC_1, 60), 0.684, 0.7),
        (job(2000, RSC_1, 5), 0.932, 0.93),
        (job(1000, RSC_1, 30, queue_min=1), 0.906, 0.9),
        (job(256, RSC_1, 60), 0.960, None),
        (job(512, RSC_1, 60), 0.919, None),
        (job(12_500, RSC_1, 7), 0.520, 0.5),
        (job(12_500, RSC_2, 2, restart_min=2), 0.939, 0.9),
    ],
)
def test_first_version_s_claims_follow(conditions: Conditions, value: float, published: float | None) -> None:
    """The formula gives the value to its last digit, the claim within 0.04; 2048 to 4096 GPUs pass 0.9."""
    found = closed_form(conditions)
    assert found == pytest.approx(value, abs=6e-4)
    if published is None:
        assert found > 0.9
    else:
        assert found == pytest.approx(published, abs=0.04)


@pytest.mark.parametrize(
    ("nodes", "rate", "write_min", "restart_min", "best_min", "value"),
    [
        (1500, RSC_1, 1 / 6, 5, 7.0, 0.920),
        (1500, RSC_1, 1 / 6, 10, 7.0, 0.89),
        (1500, 1.0, 5, 5, 98, 0.898),
        (1500, RSC_1, 5, 5, 38.4, 0.740),
        (256, RSC_1, 5, 5, 93, 0.893),
        (512, RSC_1, 5, 5, 65.8, 0.848),
    ],
)
def test_second_version_s_claims_follow(  # noqa: PLR0913, PLR0917 - a row of a table.
    nodes: int, rate: float, write_min: float, restart_min: float, best_min: float, value: float
) -> None:
    """At Daly and Young's interval; the published 0.9 and 0.85 to 0.9 are these, rounded."""
    given_ = job(nodes, rate, 60, restart_min=restart_min, write_min=write_min)
    best = daly_young_min(given_)
    assert best == pytest.approx(best_min, rel=6e-3)
    at_best = msgspec.structs.replace(given_, checkpoint_min=best)
    assert closed_form(at_best) == pytest.approx(value, abs=6e-4 if value != 0.89 else 6e-3)


# --- where the published figures contradict each other -----------------------------------------


def test_measured_anchors_agree_with_each_other_but_not_with_the_rate() -> None:
    """7.9 h at 1024 GPUs needs 23.7 and 47.7 days at 8 need 21.0 per 1000 node-days; projections use 6.5."""
    assert float(mttf_hours(128, 23.7)) == pytest.approx(7.9, abs=0.05)
    assert float(mttf_hours(1, 21.0)) / 24 == pytest.approx(47.7, abs=0.1)
    assert float(mttf_hours(128, RSC_1)) == pytest.approx(28.8, abs=0.1)


def test_ten_hours_at_4096_gpus_do_not_follow_from_the_rate() -> None:
    """It gives 7.2 h."""
    assert float(mttf_hours(512, RSC_1)) == pytest.approx(7.2, abs=0.05)


def test_21_minutes_for_half_do_not_follow_from_the_rate_of_rsc_2() -> None:
    """100,000 GPUs reach 0.685, and 131,072 reach 0.587, with that interval; 0.5 was published."""
    assert closed_form(job(12_500, RSC_2, 21)) == pytest.approx(0.685, abs=6e-4)
    assert closed_form(job(16_384, RSC_2, 21)) == pytest.approx(0.587, abs=6e-4)


def test_rate_is_per_1000_node_days() -> None:
    """A node with 6.5 fails every 154 days; read as 6.5 a day, nothing would ever be done."""
    assert float(mttf_hours(1, RSC_1)) / 24 == pytest.approx(153.8, abs=0.1)
    assert closed_form(job(1000, 1000 * RSC_1, 60)) == 0
