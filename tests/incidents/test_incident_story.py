"""A run's story, in the orders in which real logs tell things: slow jobs and how runs go."""

from __future__ import annotations

import pytest

from holdfast.findings import Suspect
from holdfast.incidents.story import Story, tell_story
from holdfast.values import (
    Applied,
    AttemptEnded,
    Dropped,
    GuardDied,
    GuardStarted,
    IncidentClosed,
    JobStopped,
    LauncherDied,
    NodeLeft,
    Probed,
    Record,
    RunEnded,
    StepSeen,
    SuspectsNamed,
    Verified,
)
from runstories import START, at, decided, died, relieved, row, slowed, started, suspect, tell

OPENING = [tell(0, START), tell(1, started(0, 1)), *(tell(2, StepSeen(rank=r, step=0)) for r in (0, 1))]
NAMED = SuspectsNamed(since_step=50, suspects=[suspect(1)])
END = [tell(200, AttemptEnded(reason="succeeded")), tell(201, RunEnded(exit_code=0, reason="succeeded"))]


def test_an_empty_log_is_a_run_that_has_not_begun() -> None:
    """Nothing is raised, and nothing is claimed."""
    view = tell_story([])
    assert (view.state, view.started_at, view.incidents, view.workers) == ("starting", "", (), ())


def test_a_slow_job_that_is_acted_on_is_one_incident_with_its_bill() -> None:
    """Slow, named, S2, verified, undone, closed; the controller's own bill counts."""
    view = tell_story(
        [
            *OPENING,
            tell(80, slowed(50)),
            tell(80.1, NAMED),
            tell(81, decided(1, "S2", is_dry=True)),
            tell(82, decided(2, "S2")),
            tell(83, Applied(number=2, level="S2", version=60, pause_s=0.2)),
            tell(90, Verified(number=2, level="S2", promised=0.4, gained=0.3, healthy_s=1.0, is_enough=True)),
            tell(120, relieved(95)),
            tell(121, decided(3, "undo", lost_s=12.0)),
            tell(122, Applied(number=3, level="undo", version=100, pause_s=0.3)),
            tell(122, IncidentClosed(since_step=50, lasted_s=42.0, lost_s=13.0, paid_s=0.5)),
            *END,
        ]
    )
    (incident,) = view.incidents
    names = " ".join(stage.name for stage in incident.stages)
    assert names == "detected named decided decided done verified verified decided done closed"
    assert (incident.lost_s, incident.paid_s, incident.ranks) == (13.0, 0.5, (1,))
    assert incident.saved_s == pytest.approx(40 * 0.3), "what was verified counts, not what was promised"
    assert incident.closed_at == at(122)
    assert view.bill.lost_gpu_h == pytest.approx(13.0 * 4 / 3600)
    assert view.levels == ()
    assert {worker.state for worker in view.workers} == {"done"}


def test_a_dry_decision_changes_nothing() -> None:
    """It is told, and neither in force nor paid for."""
    view = tell_story([*OPENING, tell(80, slowed(50)), tell(81, decided(1, "S2", is_dry=True))])
    (incident,) = view.incidents
    assert (view.state, view.levels, incident.last, incident.saved_s) == ("slow", (), "decided", 0.0)
    assert {worker.speed for worker in view.workers} == {1.0}


def test_a_slow_job_that_nobody_acts_on_costs_what_its_steps_were_seen_to_take() -> None:
    """Forty steps of half a second too much, until it got well by itself."""
    view = tell_story([*OPENING, tell(80, slowed(50)), tell(140, relieved(90)), *END])
    (incident,) = view.incidents
    assert incident.lost_s == pytest.approx(20.0)
    assert incident.closed_at == at(140)


def test_what_is_over_is_not_told_anew_to_who_looks_again() -> None:
    """Views of a long run share its past, and only what goes on is another one."""
    story = Story()
    for record in [*OPENING, tell(80, slowed(50)), tell(140, relieved(90)), tell(180, slowed(150))]:
        story.add(record)
    before = story.view().incidents
    story.add(tell(200, StepSeen(rank=0, step=170)))
    after = story.view().incidents
    assert after[0] is before[0]
    assert after[1].lost_s > before[1].lost_s


def test_a_slow_job_that_gets_slower_and_a_little_better_is_still_one() -> None:
    """Each level counts for the steps that had it, against the first healthy one."""
    view = tell_story(
        [
            *OPENING,
            tell(80, slowed(50)),
            tell(100, slowed(60, 1.5, 2.0)),
            tell(120, relieved(70, 2.0, 1.2, is_slow=True)),
            tell(140, relieved(80, 1.2, 1.0)),
        ]
    )
    (incident,) = view.incidents
    assert incident.lost_s == pytest.approx(10 * 0.5 + 10 * 1.0 + 10 * 0.2)
    assert [stage.name for stage in incident.stages] == ["detected", "detected", "verified", "closed"]


def test_the_cost_of_an_open_incident_grows_with_the_steps() -> None:
    """At once what it had cost when it was noticed, then what summaries tell."""
    opening = [*OPENING, tell(80, slowed(50))]
    assert tell_story(opening).incidents[0].lost_s == pytest.approx(5.0)
    assert tell_story(opening, step=150).incidents[0].lost_s == pytest.approx(50.0)
    assert tell_story(opening, summaries=[row(100, 70)]).incidents[0].lost_s == pytest.approx(10.0)


def test_two_slow_incidents_are_two_and_a_late_bill_goes_to_its_own() -> None:
    """The first one's bill is told when the second has begun."""
    view = tell_story(
        [
            *OPENING,
            tell(80, slowed(50)),
            tell(120, relieved(80)),
            tell(150, slowed(100)),
            tell(151, IncidentClosed(since_step=50, lasted_s=40.0, lost_s=16.0, paid_s=0.0)),
        ]
    )
    first, second = view.incidents
    assert (first.lost_s, first.closed_at, first.since_step) == (16.0, at(120), 50)
    assert (second.is_open, second.since_step, view.state) == (True, 100, "slow")


def test_an_imbalance_from_the_start_names_nobody_for_a_slow_job() -> None:
    """It is said about step 0, whatever else goes on."""
    uneven = SuspectsNamed(since_step=0, suspects=[suspect(0)])
    view = tell_story([*OPENING, tell(80, slowed(50)), tell(80.1, NAMED), tell(81, uneven)])
    assert view.incidents[0].ranks == (1,)


def test_a_probe_replaces_what_was_said_and_one_that_finds_nobody_does_not() -> None:
    """Who was timed is known better than who was compared."""
    probe = Probed(order="a", ranks=[0, 1], suspects=[suspect(0)], silent=[])
    blank = Probed(order="b", ranks=[0, 1], suspects=[], silent=[])
    view = tell_story([*OPENING, tell(80, slowed(50)), tell(81, NAMED), tell(82, probe), tell(83, blank)])
    assert view.incidents[0].ranks == (0,)


def test_a_restart_ends_a_slow_incident_and_what_was_in_force() -> None:
    """What S2 has saved until then stays; steps of the next attempt add nothing."""
    records = [
        *OPENING,
        tell(80, slowed(50)),
        tell(82, decided(2, "S2")),
        tell(83, Applied(number=2, level="S2", version=60, pause_s=0.2)),
        tell(100, AttemptEnded(reason="failed")),
        tell(101, started(0, 1), attempt=1),
        tell(105, StepSeen(rank=0, step=0), attempt=1),
    ]
    view = tell_story(records, summaries=[row(99, 80), row(150, 5_000, attempt=1)])
    (incident,) = view.incidents
    assert incident.closed_at == at(100)
    assert incident.saved_s == pytest.approx(20 * 0.4)
    assert (view.levels, view.step, view.state) == ((), 5_000, "training")


def test_a_restart_of_which_the_end_before_is_not_told_ends_it_too() -> None:
    """As after a line that was cut."""
    view = tell_story([*OPENING, tell(80, slowed(50)), tell(101, started(0, 1), attempt=1)])
    assert view.incidents[0].closed_at == at(101)
    assert view.state == "starting"


def test_a_guard_that_is_started_again_ends_nothing() -> None:
    """It says once more which ranks train."""
    again = [tell(90, GuardStarted(pid=2)), tell(91, StepSeen(rank=1, step=40))]
    dead = tell(85, GuardDied(pid=1, exit_code=137, signal="SIGKILL"))
    view = tell_story([*OPENING, tell(80, slowed(50)), tell(80.5, NAMED), dead, *again])
    assert (view.state, view.incidents[0].is_open) == ("slow", True)


def test_nodes_read_one_after_the_other_are_one_run() -> None:
    """Node 1's log tells of attempt 0 again after all of node 0's; nobody is forgotten."""
    first = [
        tell(0, START),
        tell(1, started(0, 1, nodes=2)),
        tell(50, AttemptEnded(reason="failed")),
        tell(51, started(0, 1, nodes=2), attempt=1),
        tell(55, StepSeen(rank=0, step=0), attempt=1),
    ]
    second = [
        tell(0.1, START, node=1),
        tell(1.1, started(2, 3, nodes=2), node=1),
        tell(49, died(3), node=1),
        tell(50.1, AttemptEnded(reason="failed"), node=1),
        tell(51.1, started(2, 3, nodes=2), node=1, attempt=1),
        tell(55.1, StepSeen(rank=3, step=0), node=1, attempt=1),
    ]
    view = tell_story([*first, *second])
    assert [(worker.rank, worker.node) for worker in view.workers] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert (view.attempt, view.state, view.started_at) == (1, "training", at(0))
    (incident,) = view.incidents
    assert (incident.ranks, incident.closed_at, incident.lost_s) == ((3,), at(55), 6.0)


def test_a_node_that_tells_late_changes_nothing_of_the_attempt_that_is() -> None:
    """A server hears of the end of attempt 0 on node 1 when attempt 1 trains."""
    story = Story()
    late = [
        tell(49, died(3), node=1),
        tell(50, AttemptEnded(reason="failed"), node=1),
        tell(1, started(2, 3), node=1),
        tell(50, NodeLeft(ranks=[0], scheduler="told"), node=1),
    ]
    for record in [
        tell(0, START),
        tell(51, started(0, 1, 2, 3), attempt=1),
        *(tell(55, StepSeen(rank=rank, step=0), attempt=1) for rank in range(4)),
        *late,
    ]:
        story.add(record)
    assert [worker.state for worker in story.view().workers] == ["training"] * 4


def test_a_node_that_leaves_does_not_end_the_run() -> None:
    """Only the first node's launcher does."""
    gone = [
        tell(90, NodeLeft(ranks=[2, 3], scheduler="drained"), node=1),
        tell(91, RunEnded(exit_code=0, reason="left the rendezvous"), node=1),
    ]
    others = [tell(0.1, START, node=1), tell(1, started(2, 3, nodes=2), node=1)]
    view = tell_story([*OPENING, tell(80, slowed(50)), *others, *gone])
    assert (view.state, view.ended_at) == ("slow", None)
    assert [worker.state for worker in view.workers][2:] == ["left", "left"]
    assert view.incidents[0].stages[-1].words.startswith("the node of rank 2, 3 was too slow")


def test_a_run_directory_that_is_used_again_tells_the_second_run() -> None:
    """Incidents of the first stay, closed; its workers and its end do not."""
    again = [tell(300, START), tell(301, started(0)), tell(305, StepSeen(rank=0, step=0))]
    view = tell_story([*OPENING, tell(80, slowed(50)), *again])
    assert (view.state, view.started_at, len(view.workers)) == ("training", at(300), 1)
    assert view.incidents[0].closed_at == at(300)
    assert tell_story([*OPENING, *END, *again]).ended_at is None


def test_a_run_whose_launcher_was_killed_is_lost_and_so_is_what_was_open() -> None:
    """Its guard tells; nothing else will."""
    view = tell_story([*OPENING, tell(80, slowed(50)), tell(90, LauncherDied(pid=7))])
    assert (view.state, view.reason, view.incidents[0].closed_at) == (
        "lost",
        "its launcher was killed",
        at(90),
    )
    assert {worker.state for worker in view.workers} == {"dead"}


def test_a_run_under_another_launcher_has_the_workers_that_train() -> None:
    """Nobody tells of a start; the guard tells of first steps."""
    alone = [
        tell(0, GuardStarted(pid=1)),
        tell(3, StepSeen(rank=5, step=0)),
        tell(3, StepSeen(rank=4, step=0)),
    ]
    view = tell_story(alone)
    assert [(worker.rank, worker.host) for worker in view.workers] == [(4, "host0"), (5, "host0")]
    assert (view.state, view.started_at, view.world_size) == ("training", at(0), 2)


def test_workers_that_were_stopped_do_not_train_any_more() -> None:
    """Between two attempts the run starts again."""
    stopped: list[Record] = [*OPENING, tell(50, AttemptEnded(reason="membership"))]
    view = tell_story(stopped)
    assert ({worker.state for worker in view.workers}, view.state) == ({"left"}, "starting")


def test_why_a_job_stopped_is_forgotten_when_it_was_started_again() -> None:
    """It is told only of the attempt that could not go on."""
    stop = [*OPENING, tell(50, JobStopped(reason="stage 1 is gone"))]
    assert tell_story(stop).reason == "stage 1 is gone"
    assert tell_story([*stop, tell(60, started(0, 1), attempt=1)]).reason == ""


def test_unknown_ranks_are_named_but_are_no_workers() -> None:
    """A suspect of another node, of which this log knows nothing."""
    far = Suspect(ranks=[77], confidence=0.9)
    view = tell_story(
        [
            *OPENING,
            tell(80, slowed(50)),
            tell(81, SuspectsNamed(since_step=50, suspects=[far])),
            tell(82, died(78)),
        ]
    )
    assert [worker.rank for worker in view.workers] == [0, 1]
    assert [incident.ranks for incident in view.incidents] == [(77,), (78,)]


def test_a_decision_that_came_to_nothing_is_no_deed() -> None:
    """Nothing was changed, so nothing can be verified or undone."""
    dropped = Dropped(number=1, level="S2", reason="the workers did not meet within 60 s")
    records = [tell(0, START), tell(1, started(0, 1)), tell(5, slowed(5)), tell(6, decided(1, "S2"))]
    (incident,) = tell_story([*records, tell(70, dropped)]).incidents
    assert [stage.name for stage in incident.stages] == ["detected", "decided", "decided"]
    assert incident.stages[-1].words == "S2 was not done: the workers did not meet within 60 s"
