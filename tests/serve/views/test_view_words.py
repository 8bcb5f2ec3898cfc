"""Numbers and times as they are read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.findings import Suspect
from holdfast.incidents.values import Incident, Stage
from holdfast.serve.web.views.words import headline, moment, say_ago, say_gpu_h, say_span, say_times

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"),
        (0.0213, "21.3 ms"),
        (3.0, "3.00 s"),
        (75.0, "75 s"),
        (142.0, "2 min 22 s"),
        (4000.0, "67 min"),
        (9000.0, "2 h 30 min"),
        (864_000.0, "10 d"),
        (float("inf"), "not known"),
    ],
)
def test_durations_have_one_or_two_units(seconds: float, words: str) -> None:
    """Never more digits than a reader can use."""
    assert say_span(seconds) == words


def test_moments_say_how_long_ago_with_the_time_under_the_pointer() -> None:
    """A clock that runs ahead is not in the future; what is no time was never."""
    at = (NOW - timedelta(minutes=5)).isoformat()
    assert say_ago(at, NOW) == "5 min ago"
    assert 'title="2026-11-17 11:55:00 UTC"' in moment(at, NOW)
    assert say_ago((NOW + timedelta(hours=1)).isoformat(), NOW) == "just now"
    assert say_ago("", NOW) == moment("<b>", NOW) == "never"


def test_gpu_time_and_ratios_have_units() -> None:
    """Small sums are minutes, large ones have no decimals."""
    assert [say_gpu_h(hours) for hours in (0, 0.01, 1.234, 12_345.6)] == [
        "0 GPU h",
        "0.6 GPU min",
        "1.23 GPU h",
        "12,346 GPU h",
    ]
    assert [say_times(ratio) for ratio in (1.9, 17.2)] == ["1.90x", "17x"]


def test_an_incident_is_named_by_whom_it_blames() -> None:
    """Before anybody is named, by what was seen first."""
    stage = Stage(name="detected", at=NOW.isoformat(), words="steps take 2.00x as long", event_id="1")
    seen = Incident(incident_id="1", kind="slow", opened_at=NOW.isoformat(), stages=(stage,))
    assert headline(seen) == "steps take 2.00x as long"
    suspects = tuple(Suspect(ranks=[rank], cause="compute", confidence=0.9) for rank in (3, 4))
    named = Incident(incident_id="1", kind="slow", opened_at="", suspects=suspects)
    assert headline(named) == "rank 3: its compute is slow (90% sure), and 1 more"
