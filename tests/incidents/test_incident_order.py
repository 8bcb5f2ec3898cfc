"""Records of several nodes in one order."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.incidents.order import merge_nodes, moment_s, seconds_between
from holdfast.values import GuardStarted, Record
from runstories import row, tell

GUARD = GuardStarted(pid=1)


def test_nodes_that_were_read_one_after_the_other_are_told_by_time() -> None:
    """As they come from a run directory: first all of node 0, then all of node 1."""
    a, b, c, d = tell(1, GUARD), tell(4, GUARD), tell(2, GUARD, node=1), tell(3, GUARD, node=1)
    assert list(merge_nodes([a, b, c, d])) == [a, c, d, b]


def test_a_clock_that_was_set_back_does_not_turn_a_log_around() -> None:
    """What a node wrote later happened later, and what others wrote comes after both."""
    late, early, other = tell(100, GUARD), tell(3, GUARD), tell(50, GUARD, node=1)
    assert list(merge_nodes([late, early, other])) == [other, late, early]


def test_a_line_without_a_time_stays_where_it_was() -> None:
    """It counts as no earlier than the line before it."""
    first, last = tell(1, GUARD), tell(3, GUARD)
    blank = msgspec.structs.replace(
        tell(2, GUARD), stamp=msgspec.structs.replace(tell(2, GUARD).stamp, at="")
    )
    assert list(merge_nodes([first, blank, last])) == [first, blank, last]


def test_rows_of_summaries_come_between_the_events_of_their_time() -> None:
    """Both are files of one node, with one clock."""
    found = list(merge_nodes([tell(1, GUARD), tell(3, GUARD)], [row(2, 7)]))
    assert [isinstance(each, Record) for each in found] == [True, False, True]


@pytest.mark.parametrize("at", ["", "yesterday", "2026-13-40T00:00:00+00:00"])
def test_what_is_no_time_takes_no_time(at: str) -> None:
    """Nothing is raised, and nothing is lost by it."""
    assert moment_s(at) is None
    assert seconds_between(at, "2026-11-15T19:40:12+00:00") == 0.0


def test_a_time_without_an_offset_is_utc_and_one_before_the_other_is_nothing() -> None:
    """So that two writers can be compared."""
    assert seconds_between("2026-11-15T19:40:00", "2026-11-15T20:40:12.5+01:00") == 12.5
    assert seconds_between("2026-11-15T19:40:12+00:00", "2026-11-15T19:40:00+00:00") == 0.0
