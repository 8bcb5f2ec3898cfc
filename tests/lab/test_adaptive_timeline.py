"""A real pipeline job writes timelines from which its steps can be drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.job.timeline import read_timelines
from holdfast.lab.fork import Job, Lab
from holdfast.plan.validate import check_order
from holdfast.serve.executed import choose_step, compare, durations

pytestmark = pytest.mark.processes


def test_every_step_of_a_job_is_recorded_whole(lab: Lab, tmp_path: Path) -> None:
    """In an order that is a valid schedule, with the operations as long as the emulation makes them."""
    arguments = ["--pp", "2", "--microbatches", "3", "--steps", "5", "--op-ms", "4"]
    job = Job(
        module="holdfast.lab.jobs.adaptive", ranks=4, args=[*arguments, "--timeline", str(tmp_path / "new")]
    )
    result = lab.run(job)
    assert result.exit_codes == [0] * 4, result.logs
    steps = read_timelines(tmp_path / "new")
    assert list(steps) == [0, 1, 2, 3, 4]
    for step in steps:
        executed = choose_step(steps, step)
        check_order(executed.problem, executed.timed.schedule)
    assert executed.problem.microbatches == 3
    compared = compare(choose_step(steps), executed.problem)
    # Never much shorter: only the slack of the emulated device may be missing.
    assert all(each.executed_ms >= 1.9 for each in durations(compared))
