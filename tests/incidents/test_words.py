"""Events in words."""

from __future__ import annotations

import msgspec
import pytest

from helpers import EVENTS
from holdfast.incidents.words import phrase
from holdfast.values import AnyEvent, Regrouped, WorkerHung

HUNG = WorkerHung(rank=3, pid=9, phase="compute", waited_s=2.5, evidence="inside it for 2.5 s")


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_kind_of_event_is_a_short_clause(event: AnyEvent) -> None:
    """On one line, whatever it carries."""
    words = phrase(event)
    assert 0 < len(words) < 120
    assert len(words.splitlines()) == 1


def test_events_of_a_job_that_survives_are_told_as_they_are() -> None:
    """The start is no recovery, and who was only seen hanging was not killed."""
    regrouped = Regrouped(generation=1, members=[0, 1, 2], version=37, dead=[3])
    assert phrase(regrouped) == "3 workers go on from step 37"
    start = msgspec.structs.replace(regrouped, generation=0, dead=[])
    assert phrase(start) == "3 workers are connected"
    assert phrase(HUNG) == "rank 3 hung, and was killed: inside it for 2.5 s"
    assert phrase(msgspec.structs.replace(HUNG, is_killed=False)) == "rank 3 hung: inside it for 2.5 s"
