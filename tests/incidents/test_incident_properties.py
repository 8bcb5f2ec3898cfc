"""What holds of every story, in whatever order it is told."""

from __future__ import annotations

import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from helpers import EVENTS
from holdfast.incidents.order import merge_nodes
from holdfast.incidents.story import Story, tell_story
from holdfast.incidents.values import RunView
from holdfast.telemetry import Summary
from holdfast.values import Record, Stamp
from runstories import at, died, regrouped, relieved, slowed

KINDS = (
    *EVENTS,
    died(0),
    died(3),
    slowed(3),
    slowed(40, 1.0, 3.0),
    relieved(20),
    relieved(60, 3.0, 1.4, is_slow=True),
    regrouped(0, 0, 1, 2, 3),
    regrouped(2, 0, 1, 2, 3, newcomers=[1, 3]),
    regrouped(3, 0, 2, 4, places=[0, 2, 3], dead=[1, 3], newcomers=[4]),
)
TIMES = st.one_of(st.integers(0, 500).map(at), st.sampled_from(["", "soon", "2026-11-15T19:40:12"]))


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """Return lines that any nodes could have written at any time."""
    records = []
    for number in range(draw(st.integers(0, 40))):
        node = draw(st.integers(0, 2))
        stamp = Stamp(
            schema=1,
            event_id=f"{node}-{number}",
            at=draw(TIMES),
            host=f"h{node}",
            node=node,
            attempt=draw(st.integers(0, 2)),
        )
        records.append(Record(stamp=stamp, event=draw(st.sampled_from(KINDS))))
    return records


ROWS = st.lists(
    st.builds(
        Summary,
        at=TIMES,
        node=st.integers(0, 2),
        attempt=st.integers(0, 2),
        steps=st.dictionaries(st.sampled_from("0123"), st.integers(0, 10_000)),
        duration_s=st.just({}),
    ),
    max_size=10,
)


def check(view: RunView) -> None:
    """Fail where something is told that cannot be."""
    for incident in view.incidents:
        assert incident.stages[0].name == "detected"
        assert incident.stages[0].event_id == incident.incident_id
        assert (incident.closed_at is not None) == any(stage.name == "closed" for stage in incident.stages)
        for amount_s in (incident.lost_s, incident.paid_s, incident.saved_s):
            assert math.isfinite(amount_s)
            assert amount_s >= 0
        assert len(set(incident.ranks)) == len(incident.ranks)
    assert len({incident.incident_id for incident in view.incidents}) == len(view.incidents)
    assert [worker.rank for worker in view.workers] == sorted({worker.rank for worker in view.workers})
    msgspec.json.decode(msgspec.json.encode(view), type=RunView)


@given(logs(), ROWS)
def test_every_order_of_events_gives_a_story_that_can_be(records: list[Record], rows: list[Summary]) -> None:
    """Nothing is raised, nothing opens without a sign, nothing is below nothing."""
    check(tell_story(records, summaries=rows, step=50))


@given(logs(), ROWS)
def test_a_story_told_line_by_line_is_the_same_as_told_at_once(
    records: list[Record], rows: list[Summary]
) -> None:
    """Looking at it in between changes nothing."""
    story = Story()
    for line in merge_nodes(records, rows):
        if isinstance(line, Record):
            story.add(line)
        else:
            story.add_summary(line)
        check(story.view())
    assert story.view() == tell_story(records, summaries=rows)


@given(logs())
def test_an_incident_never_loses_what_was_told_of_it(records: list[Record]) -> None:
    """Stages are only added, and what is closed stays closed."""
    story = Story()
    before: RunView = story.view()
    for record in records:
        story.add(record)
        now = story.view()
        for old, new in zip(before.incidents, now.incidents, strict=False):
            assert new.incident_id == old.incident_id
            assert new.stages[: len(old.stages)] == old.stages
            assert old.closed_at in (None, new.closed_at)
        assert len(now.incidents) >= len(before.incidents)
        before = now


@given(logs())
def test_merging_keeps_every_line_and_the_order_of_each_node(records: list[Record]) -> None:
    """Whatever their clocks say."""
    merged = [line for line in merge_nodes(records) if isinstance(line, Record)]
    for node in range(3):
        assert [each for each in merged if each.stamp.node == node] == [
            each for each in records if each.stamp.node == node
        ]
    assert len(merged) == len(records)
