"""Deaths and hangs as incidents, in the orders in which they are told."""

from __future__ import annotations

import pytest

from holdfast.incidents.story import Story, tell_story
from holdfast.incidents.values import Incident
from holdfast.values import (
    AttemptEnded,
    GuardStarted,
    JobHung,
    Record,
    RunEnded,
    StepSeen,
    WorkerHung,
    WorkerReturned,
)
from runstories import START, at, died, regrouped, row, slowed, started, suspect, tell

OPENING = [
    tell(0, START),
    tell(1, started(0, 1, 2, 3)),
    tell(2, regrouped(0, 0, 1, 2, 3)),
    *(tell(3, StepSeen(rank=rank, step=0)) for rank in range(4)),
]
HUNG = WorkerHung(rank=3, pid=9, phase="compute", waited_s=2.5, evidence="inside it for 2.5 s")
SILENT = JobHung(lasted_s=10.0, limit_s=8.0, suspects=[suspect(1)])


def told(*records: Record) -> tuple[Incident, ...]:
    """Return the incidents of a run that goes on so."""
    return tell_story([*OPENING, *records]).incidents


def names(incident: Incident) -> str:
    """Return the stages in a line."""
    return " ".join(stage.name for stage in incident.stages)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_death_that_is_survived_is_one_incident_whoever_tells_it_first(is_late: bool) -> None:
    """The survivors may go on before the launcher sees who died."""
    death, going_on = tell(10.6 if is_late else 10, died(3)), tell(10.5, regrouped(1, 0, 1, 2, dead=[3]))
    end = tell(50, AttemptEnded(reason="succeeded"))
    (incident,) = told(*sorted([death, going_on], key=lambda each: each.stamp.at), end)
    assert (incident.kind, incident.ranks, incident.last) == ("death", (3,), "closed")
    assert incident.lost_s == (0.0 if is_late else 0.5)
    assert any("SIGKILL" in stage.words for stage in incident.stages)
    assert incident.stages[-1].words == "training came to its end"


def test_a_job_that_goes_on_without_somebody_is_degraded_until_it_is_back() -> None:
    """And the incident is over then."""
    short = [*OPENING, tell(10, died(3)), tell(10.5, regrouped(1, 0, 1, 2, dead=[3]))]
    view = tell_story(short)
    assert (view.state, view.incidents[0].is_open, view.incidents[0].last) == ("degraded", True, "done")
    back = tell_story(
        [*short, tell(12, WorkerReturned(rank=3, pid=5)), tell(15, regrouped(2, 0, 1, 2, 3, newcomers=[3]))]
    )
    assert (back.state, names(back.incidents[0])) == ("training", "detected done decided closed")
    assert back.workers[3].place == 3


def test_longer_steps_without_a_worker_are_lost_too() -> None:
    """Against what steps took while all were there, until all are there again."""
    records = [*OPENING, tell(10, died(3)), tell(10.5, regrouped(1, 0, 1, 2, dead=[3], version=7))]
    back = tell(40, regrouped(2, 0, 1, 2, 3, newcomers=[3], version=22))
    rows = [row(3, 0), row(9, 6), row(11, 8), row(31, 18), row(50, 40)]
    (incident,) = tell_story([*records, back], summaries=rows).incidents
    assert incident.lost_s == pytest.approx(0.5 + (20 - 10 * 1.0))


def test_somebody_new_in_the_place_of_a_dead_worker_ends_the_incident() -> None:
    """Another place would not."""
    gone = [tell(10, died(2)), tell(10.5, regrouped(1, 0, 1, 3, places=[0, 1, 3], dead=[2]))]
    other = regrouped(2, 0, 1, 3, 4, places=[0, 1, 3, 7], dead=[2], newcomers=[4])
    same = regrouped(2, 0, 1, 3, 4, places=[0, 1, 3, 2], dead=[2], newcomers=[4])
    assert told(*gone, tell(20, other))[0].is_open
    assert told(*gone, tell(20, same))[0].closed_at == at(20)


def test_two_that_died_together_are_one_although_they_come_back_one_by_one() -> None:
    """The survivors named both; it is over with the second."""
    (incident,) = told(
        tell(10, regrouped(1, 0, 3, dead=[2, 1])),
        tell(10.1, died(1)),
        tell(10.1, died(2)),
        tell(11, WorkerReturned(rank=1, pid=5)),
        tell(12, WorkerReturned(rank=2, pid=6)),
        tell(14, regrouped(2, 0, 1, 3, dead=[2], newcomers=[1])),
        tell(16, regrouped(3, 0, 1, 2, 3, newcomers=[2])),
    )
    assert (sorted(incident.ranks), incident.closed_at) == ([1, 2], at(16))


def test_one_who_dies_while_another_is_missing_is_an_incident_of_its_own() -> None:
    """Each is over when its own worker is back."""
    first, second = told(
        tell(10, died(3)),
        tell(10.5, regrouped(1, 0, 1, 2, dead=[3])),
        tell(20, died(2)),
        tell(20.5, regrouped(2, 0, 1, dead=[3, 2])),
        tell(30, regrouped(3, 0, 1, 3, dead=[2], newcomers=[3])),
    )
    assert (first.ranks, first.closed_at, second.ranks, second.is_open) == ((3,), at(30), (2,), True)


def test_a_node_that_is_lost_is_told_by_those_who_go_on() -> None:
    """Its own launcher tells nothing any more."""
    view = tell_story([*OPENING, tell(10, regrouped(1, 0, 1, dead=[2, 3]))])
    (incident,) = view.incidents
    assert incident.ranks == (2, 3)
    assert incident.stages[0].words == "rank 2 does not answer any more"
    assert [worker.state for worker in view.workers] == ["training", "training", "dead", "dead"]


def test_a_regrouping_that_still_names_the_dead_is_no_recovery() -> None:
    """Work was shared out anew at the moment of the death; the next one is without it."""
    (incident,) = told(
        tell(10, died(3)),
        tell(10.1, regrouped(1, 0, 1, 2, 3)),
        tell(12, regrouped(2, 0, 1, 2, dead=[3])),
    )
    assert (names(incident), incident.lost_s) == ("detected done", 2.0)


def test_a_death_within_a_slow_incident_leaves_it_open() -> None:
    """They are two, and only one of them is about the death."""
    slow, death = told(tell(8, slowed(50)), tell(10, died(3)), tell(10.5, regrouped(1, 0, 1, 2, dead=[3])))
    assert (slow.kind, death.kind, slow.is_open) == ("slow", "death", True)


def test_a_restart_ends_a_death_with_the_first_step_of_the_next_attempt() -> None:
    """Not with a step that a new guard tells once more of the same attempt."""
    failed = [tell(10, died(3)), tell(11, AttemptEnded(reason="failed"))]
    again = [tell(11.5, GuardStarted(pid=2)), tell(12, StepSeen(rank=0, step=3))]
    assert told(*failed, *again)[0].is_open
    restart = [tell(13, started(0, 1, 2, 3), attempt=1), tell(20, StepSeen(rank=0, step=0), attempt=1)]
    (incident,) = told(*failed, *again, *restart)
    assert (incident.closed_at, incident.lost_s) == (at(20), 10.0)
    assert incident.stages[-1].words == "training goes on after a restart"


def test_deaths_in_a_later_attempt_are_not_ended_by_a_guard_that_was_restarted() -> None:
    """The attempt is above 0 already; its steps are still those from before."""
    restart = [tell(13, started(0, 1, 2, 3), attempt=1), tell(20, StepSeen(rank=0, step=0), attempt=1)]
    late = [tell(30, died(2), attempt=1), tell(31, StepSeen(rank=0, step=7), attempt=1)]
    assert told(*restart, *late)[-1].is_open


def test_a_run_that_fails_ends_what_was_open() -> None:
    """Who died first is the first of its ranks."""
    first, second = told(
        tell(10, died(3)),
        tell(10.2, died(0)),
        tell(11, AttemptEnded(reason="failed")),
        tell(12, RunEnded(exit_code=1, reason="failed")),
        tell(300, died(1)),
    )
    assert (first.ranks, first.closed_at, first.stages[-1].words) == (
        (3, 0),
        at(12),
        "the workers were stopped",
    )
    assert second.is_open, "what is told after the end is still told"


def test_a_worker_that_hung_and_was_killed_is_one_incident() -> None:
    """Told by its guard, the survivors, and its launcher; the time it stood before counts."""
    view = tell_story(
        [*OPENING, tell(10, HUNG), tell(10.5, regrouped(1, 0, 1, 2, dead=[3])), tell(10.6, died(3))]
    )
    (incident,) = view.incidents
    assert (incident.kind, incident.ranks, incident.last, view.state) == ("hang", (3,), "done", "degraded")
    assert incident.lost_s == pytest.approx(3.0)


def test_a_worker_that_hangs_and_is_left_alone_holds_the_job() -> None:
    """Until something shows that steps are made."""
    noted = WorkerHung(rank=3, pid=9, phase="compute", waited_s=2.5, evidence="x", is_killed=False)
    assert tell_story([*OPENING, tell(10, noted)]).state == "hung"
    view = tell_story([*OPENING, tell(10, noted), tell(30, slowed(50))])
    assert (view.state, view.incidents[0].closed_at) == ("slow", at(30))
    assert "hung" not in {worker.state for worker in view.workers}


def test_a_hang_of_all_is_named_and_costs_from_its_beginning() -> None:
    """The ten seconds before it was noticed too."""
    view = tell_story(
        [*OPENING, tell(20, SILENT), tell(50, RunEnded(exit_code=1, reason="stopped by SIGTERM"))]
    )
    (incident,) = view.incidents
    assert (names(incident), incident.lost_s, incident.ranks) == ("detected named closed", 40.0, (1,))
    assert incident.stages[0].words == "no step and no call for 10 s"


def test_a_hang_from_which_a_job_recovers_is_over_with_its_next_step() -> None:
    """No event tells it, but the summaries do; a row of an old step does not."""
    records = [*OPENING, tell(20, SILENT)]
    before = [row(8, 40), row(9, 41)]
    assert tell_story(records, summaries=[*before, row(20.5, 41)]).state == "hung"
    view = tell_story(records, summaries=[*before, row(31, 42)])
    assert (view.state, view.incidents[0].closed_at, view.incidents[0].lost_s) == ("training", at(31), 21.0)


def test_a_step_from_before_a_hang_that_is_heard_of_later_does_not_end_it() -> None:
    """As where a log is read again, and only then how far the run had come."""
    story = Story()
    for record in [*OPENING, tell(20, SILENT)]:
        story.add(record)
    story.reach(41, at(9))
    assert story.view().state == "hung"
    story.reach(42, at(31))
    assert story.view().state == "training"


def test_a_guard_that_is_started_again_does_not_end_a_hang() -> None:
    """It tells of the oldest step that it finds, not of a new one."""
    again = [tell(25, GuardStarted(pid=2)), tell(26, StepSeen(rank=0, step=0))]
    assert tell_story([*OPENING, tell(20, SILENT), *again]).incidents[0].is_open


def test_a_hang_that_is_told_twice_is_one() -> None:
    """With the later suspects."""
    other = JobHung(lasted_s=30.0, limit_s=8.0, suspects=[suspect(2)])
    (incident,) = told(tell(20, SILENT), tell(40, other))
    assert (incident.ranks, incident.suspects, incident.lost_s) == ((1, 2), (suspect(2),), 30.0)


def test_a_hang_that_ends_in_a_kill_is_over_when_the_others_go_on() -> None:
    """The death that it became stays open until its worker is back."""
    hang, death = told(tell(20, SILENT), tell(25, died(1)), tell(26, regrouped(1, 0, 2, 3, dead=[1])))
    assert (hang.kind, hang.closed_at, death.kind, death.is_open) == ("hang", at(26), "death", True)
