"""Runs: which attempts belong together, and how much of their time was progress."""

from __future__ import annotations

import pytest

from holdfast.reliability.jobruns import Habits, by_size, chain, job_runs, measure
from jobtables import attempts

HOUR = 60


def test_attempts_of_one_id_are_one_run() -> None:
    """A requeued job keeps its id, and so its run; attempts that never started are in none."""
    table = attempts(
        {"job": "7", "start": 0, "end": 10},
        {"job": "8", "start": 0, "end": 10},
        {"job": "7", "attempt": 2, "start": 20, "end": 30},
        {"job": "7", "attempt": 3, "start": None, "end": None},
    )
    assert chain(table).select("job", "attempt", "run").rows() == [("7", 1, 1), ("7", 2, 1), ("8", 1, 2)]


def test_jobs_of_one_name_are_one_run_if_they_follow_each_other() -> None:
    """A sweep, which overlaps, is many runs; so are jobs of the same name with days between them."""
    same = {"name": "llm", "user": "ada", "gpus": 64}
    table = attempts(
        {"job": "1", "start": 0, "end": 60, **same},
        {"job": "2", "eligible": 65, "start": 70, "end": 130, **same},
        {"job": "3", "eligible": 100, "start": 120, "end": 180, **same},
        {"job": "4", "eligible": 5000, "start": 5000, "end": 5100, **same},
        {"job": "5", "start": 140, "end": 200, **same, "user": "bob"},
        {"job": "6", "start": 140, "end": 200, **same, "name": None},
        {"job": "7", "start": 210, "end": 250, **same, "name": None},
    )
    runs = {row["job"]: row["run"] for row in chain(table, by_name=True).to_dicts()}
    assert runs["1"] == runs["2"]
    assert len({runs[job] for job in "134567"}) == 6


def test_ettr_of_a_run_is_what_the_formula_says() -> None:
    """Two attempts of 10 and 20 h, queued for 1 h and 2 h, each losing 5 min to start and 30 min to redo."""
    table = attempts(
        {"job": "1", "eligible": 0, "start": HOUR, "end": 11 * HOUR},
        {"job": "1", "attempt": 2, "eligible": 11 * HOUR, "start": 13 * HOUR, "end": 33 * HOUR},
    )
    (run,) = measure(chain(table)).to_dicts()
    assert (run["attempts"], run["queued_h"], run["scheduled_h"]) == (2, 3.0, 30.0)
    assert run["ettr"] == pytest.approx((30 - 2 * (5 + 30) / 60) / 33)


def test_short_attempts_lose_no_more_than_they_had() -> None:
    """An attempt of 3 min and one of 20 min have no progress, not a negative one."""
    table = attempts({"job": "1", "end": 3}, {"job": "2", "end": 20}, {"job": "3", "end": 45})
    assert measure(chain(table), least_h=0)["productive_h"].to_list() == pytest.approx([0, 0, 10 / 60])


def test_time_before_the_last_attempt_ended_is_not_queued() -> None:
    """Records that keep the first eligibility of a requeued job do not count its run time as waiting."""
    table = attempts(
        {"job": "1", "eligible": 0, "start": 0, "end": 600},
        {"job": "1", "attempt": 2, "eligible": 0, "start": 630, "end": 1500},
    )
    assert measure(chain(table), least_h=0)["queued_h"].to_list() == [0.5]


def test_best_interval_depends_on_the_size_of_the_run() -> None:
    """With 5 min to write and 6.5 failures in 1,000 node-days, 256 nodes checkpoint every 93 min."""
    habits = Habits(checkpoint_min=None, write_min=5.0, rate_per_node_day=6.5e-3)
    table = attempts({"nodes": 256, "gpus": 2048, "end": 100 * HOUR})
    interval_h = 93.03 / 60
    expected = (100 - 5 / 60 - interval_h / 2) / (1 + 5 / 60 / interval_h)
    assert measure(chain(table), habits)["productive_h"].item() == pytest.approx(expected, rel=1e-3)


def test_lenient_habits_let_completed_attempts_keep_all() -> None:
    """Only attempts that were interrupted have something to redo."""
    table = attempts({"end": 65}, {"end": 65, "state": "NODE_FAIL"})
    runs = measure(chain(table), Habits(is_lenient=True), least_h=0)
    assert runs["productive_h"].to_list() == pytest.approx([1.0, 0.5])


def test_best_interval_without_a_rate_is_refused() -> None:
    """What cannot be computed is said when it is asked for."""
    with pytest.raises(ValueError, match="needs a failure rate"):
        Habits(checkpoint_min=None)


def test_runs_of_one_size_are_weighed_by_their_time() -> None:
    """A long run counts more than a short one; a single run has no interval."""
    table = attempts({"end": 90 * HOUR}, {"end": 30 * HOUR}, {"end": 30 * HOUR, "gpus": 64})
    sizes = by_size(measure(chain(table)))
    assert sizes.select("bucket", "runs").rows() == [(8, 2), (64, 1)]
    assert sizes["ettr"][0] == pytest.approx((120 - 2 * 35 / 60) / 120)
    assert sizes["ettr_low"][0] < sizes["ettr"][0] < sizes["ettr_high"][0] <= 1
    assert sizes["ettr_low"][1] is None


@pytest.mark.parametrize("by_name", [True, False])
def test_short_runs_left_out_early_are_left_out_all_the_same(by_name: bool) -> None:
    """The runs of a day or more are the same whether the others are dropped at once or at the end."""
    same = {"name": "llm", "user": "ada"}
    table = attempts(
        {"job": "1", "end": 20 * HOUR, **same},
        {"job": "1", "attempt": 2, "start": 21 * HOUR, "end": 30 * HOUR, **same},
        {"job": "2", "start": 31 * HOUR, "end": 51 * HOUR, **same},
        {"job": "3", "end": HOUR, "name": None},
        {"job": "4", "end": 40 * HOUR, "name": None, "user": None},
    )
    late = measure(chain(table, by_name=by_name)).drop("run").sort("job")
    assert job_runs(table, by_name=by_name).drop("run").sort("job").equals(late)
    assert late["job"].to_list() == ["1", "4"]
