"""What is worth a message."""

from __future__ import annotations

import itertools
from datetime import timedelta

from receivers import NOW, incident, run_with

from holdfast.incidents.values import Incident, RunView
from holdfast.serve.notify.deciding import Message, find_chains, what_to_send


def _told(before: RunView | None, after: RunView) -> list[tuple[str, str]]:
    return [(each.incident_id, each.mark) for each in what_to_send(before, after, now=NOW)]


def test_an_incident_is_told_as_it_comes_on() -> None:
    """Each stage is told when it is new, and only then."""
    views = [
        run_with(),
        run_with(incident("a", ("detected", 4))),
        run_with(incident("a", ("detected", 4), ("named", 3), ranks=(2,))),
        run_with(incident("a", ("detected", 4), ("named", 3), ("decided", 2), ranks=(2,))),
        run_with(incident("a", ("detected", 4), ("named", 3), ("decided", 2), ("done", 1), ranks=(2,))),
        run_with(
            incident(
                "a", ("detected", 4), ("named", 3), ("decided", 2), ("done", 1), ("closed", 0), ranks=(2,)
            )
        ),
    ]
    steps = [_told(before, after) for before, after in itertools.pairwise(views)]
    assert steps == [[("a", "opened")], [("a", "named")], [], [("a", "mitigated")], [("a", "closed")]]
    assert _told(views[-1], views[-1]) == []


def test_what_is_learned_again_is_not_told_again() -> None:
    """A second name for the same incident changes nothing that was said."""
    before = run_with(incident("a", ("detected", 4), ("named", 3)))
    after = run_with(incident("a", ("detected", 4), ("named", 3), ("detected", 2), ("named", 1)))
    assert _told(before, after) == []


def test_history_is_not_told() -> None:
    """A server that meets an old run speaks only of the last quarter of an hour."""
    old = incident("old", ("detected", 300), ("named", 299), ("closed", 200))
    long = incident("long", ("detected", 90), ("named", 80), ("done", 14.9))
    assert _told(None, run_with(old, long)) == [("long", "mitigated")]
    assert _told(run_with(), run_with(old)) == []


def test_a_clock_that_is_ahead_does_not_silence_a_run() -> None:
    """What happens in the future, by the clock of its node, is young."""
    assert _told(None, run_with(incident("a", ("detected", -60)))) == [("a", "opened")]


def test_a_moment_that_is_none_is_not_told() -> None:
    """What came over the network is never parsed in vain."""
    broken = Incident(incident_id="a", kind="slow", opened_at="yesterday")
    assert _told(None, run_with(broken, broken)) == []


def test_a_decision_that_came_to_nothing_mitigates_nothing() -> None:
    """It is told as what became of the decision."""
    dropped = incident(
        "a", ("detected", 2), ("decided", 1), words="S2 was not done: the workers did not meet"
    )
    assert _told(None, run_with(dropped)) == [("a", "opened")]


def test_an_incident_that_returns_is_one_message_with_a_count() -> None:
    """The first is told in full; those after it are folded into one, with the sum of what they cost."""
    flaps = [
        incident("a", ("detected", 9), ("named", 8.5), ("closed", 8), ranks=(3,), lost_s=1.0),
        incident("b", ("detected", 7), ("named", 6.5), ("closed", 6), ranks=(3,), lost_s=2.0),
        incident("c", ("detected", 5), ("named", 4.5), ranks=(3,), lost_s=4.0),
    ]
    assert _told(None, run_with(*flaps)) == [
        ("a", "opened"),
        ("a", "named"),
        ("a", "closed"),
        ("a", "again 3 open"),
    ]
    last = what_to_send(run_with(*flaps[:2]), run_with(*flaps), now=NOW)
    assert [(each.count, each.is_open, each.lost_s) for each in last] == [(3, True, 7.0)]


def test_another_rank_or_kind_or_hour_is_another_incident() -> None:
    """Only the same trouble of the same ranks, soon after, is a return."""
    first = incident("a", ("detected", 60), ("closed", 50), ranks=(3,))
    others = [
        incident("b", ("detected", 45), ("closed", 44), ranks=(4,)),
        incident("c", ("detected", 45), ("closed", 44), ranks=(3,), kind="death"),
        incident("d", ("detected", 39), ("closed", 38), ranks=(3,)),
    ]
    for other in others:
        assert find_chains([first, other]) == [[first], [other]]
    soon = incident("e", ("detected", 41), ("closed", 40), ranks=(3,))
    assert find_chains([first, soon]) == [[first, soon]]


def test_a_return_that_turns_out_to_be_somebody_else_is_told_by_itself() -> None:
    """Who it is becomes known only after it was detected."""
    first = incident("a", ("detected", 9), ("closed", 8), ranks=(3,))
    unknown = incident("b", ("detected", 5))
    known = incident("b", ("detected", 5), ("named", 4), ranks=(5,))
    assert _told(run_with(first), run_with(first, unknown)) == [("a", "again 2 open")]
    assert _told(run_with(first, unknown), run_with(first, known)) == [("b", "named")]


def test_a_message_carries_the_bill() -> None:
    """Of the end, with how many GPUs have paid it."""
    closed = incident("a", ("detected", 2), ("closed", 1), lost_s=14.0)
    message = what_to_send(run_with(incident("a", ("detected", 2))), run_with(closed), now=NOW)[0]
    assert isinstance(message, Message)
    assert (message.told, message.lost_s, message.gpus, message.is_open) == ("closed", 14.0, 8, False)


def test_many_incidents_are_gone_through_quickly() -> None:
    """Ten thousand of different ranks are no more than ten thousand looks back."""
    many = [
        incident(str(number), ("detected", 5), ("closed", 4), ranks=(number,)) for number in range(10_000)
    ]
    assert len(find_chains(many)) == 10_000
    assert what_to_send(None, run_with(*many), now=NOW + timedelta(hours=1)) == []
