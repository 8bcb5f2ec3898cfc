"""group_times and find_slow_groups: which group's transfer is slow, whoever it is that comes late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from holdfast.diagnose.groups import GroupTime, find_slow_groups, group_times
from holdfast.diagnose.naming import Evidence, name_suspects
from holdfast.diagnose.profiles import profile_of
from holdfast.telemetry import Channel, ChannelUse, Step

PAIRS = [(0, 4), (1, 5), (2, 6), (3, 7)]
Told = tuple[dict[int, list[Step]], dict[int, dict[int, Channel]]]


def job(
    transfers: Sequence[float], *, late: Mapping[int, float] | None = None, moved: int = 1000, seed: int = 0
) -> Told:
    """Return ten steps of eight ranks in four data-parallel pairs; then all wait for all."""
    rng = np.random.default_rng(seed)
    steps: dict[int, list[Step]] = {rank: [] for rank in range(8)}
    for number in range(10):
        own = 0.3 * np.exp(rng.normal(0, 0.02, 8))
        for rank, more_s in (late or {}).items():
            own[rank] += more_s
        ended = {
            rank: max(own[pair[0]], own[pair[1]]) + t
            for pair, t in zip(PAIRS, transfers, strict=True)
            for rank in pair
        }
        last = max(ended.values()) + 0.01
        for rank in range(8):
            uses = (
                ChannelUse(channel=1, wait_s=ended[rank] - own[rank], moved_bytes=moved, calls=1),
                ChannelUse(channel=2, wait_s=last - ended[rank], moved_bytes=8, calls=1),
            )
            wait_s = last - float(own[rank])
            steps[rank].append(
                Step(rank=rank, step=number, ended_s=number, duration_s=last, wait_s=wait_s, channels=uses)
            )
    channels = {
        rank: {
            1: Channel(number=1, kind="group", ranks=list(pair), name="mesh_dp"),
            2: Channel(number=2, kind="group", ranks=list(range(8)), name="default_pg"),
        }
        for pair in PAIRS
        for rank in pair
    }
    return steps, channels


def test_a_transfer_is_what_the_last_to_come_spends_in_the_call() -> None:
    """A late rank makes its peer wait, and its group's transfer no longer."""
    times = group_times(*job([0.05] * 4, late={2: 0.5}))
    pairs = [each for each in times if len(each.ranks) == 2]
    assert [each.ranks for each in pairs] == PAIRS
    assert all(0.05 <= each.transfer_s < 0.08 for each in pairs)
    assert {each.moved_bytes for each in pairs} == {1000.0}


def test_a_slow_group_is_found_among_its_like() -> None:
    """FALCON's example in small: three take 150 ms, the fourth 250."""
    slow = group_times(*job([0.15, 0.15, 0.25, 0.15]))
    found = find_slow_groups(slow, (), step_s=0.6)
    assert [each.ranks for each in found] == [[2, 6]]
    assert found[0].slowdown == pytest.approx(0.25 / 0.15, rel=0.1)
    assert "mesh_dp of ranks 2 and 6" in found[0].evidence


def test_a_late_rank_is_no_slow_group() -> None:
    """Who merely waits is healthy."""
    healthy = group_times(*job([0.05] * 4))
    late = group_times(*job([0.05] * 4, late={3: 0.4}, seed=1))
    assert find_slow_groups(late, healthy, step_s=0.8) == []


def test_groups_that_were_always_apart_are_not_slow() -> None:
    """A pair across nodes takes longer than one within, today as yesterday."""
    transfers = [0.05, 0.05, 0.2, 0.05]
    healthy, now = group_times(*job(transfers)), group_times(*job(transfers, seed=1))
    assert find_slow_groups(now, healthy, step_s=0.6) == []


def test_a_group_that_got_slower_is_found_against_before() -> None:
    """It takes longer than it did, and than its like."""
    healthy, now = group_times(*job([0.05] * 4)), group_times(*job([0.05, 0.2, 0.05, 0.05], seed=1))
    assert [each.ranks for each in find_slow_groups(now, healthy, step_s=0.6)] == [[1, 5]]


def test_what_all_groups_suffer_from_is_none_of_theirs() -> None:
    """Where all of a kind got slower by as much, no single one is told."""
    healthy, now = group_times(*job([0.05] * 4)), group_times(*job([0.2] * 4, seed=1))
    assert [each.ranks for each in find_slow_groups(now, healthy, step_s=0.6) if len(each.ranks) == 2] == []


def test_what_costs_a_step_nothing_is_not_told() -> None:
    """A group of twice the time that is a hundredth of a step is let be."""
    now = group_times(*job([0.005, 0.005, 0.02, 0.005]))
    assert find_slow_groups(now, (), step_s=2.0) == []


def test_only_groups_that_move_as_much_are_compared() -> None:
    """The group of all moves next to nothing, and is like none of the pairs."""
    one = GroupTime(ranks=(0, 1), name="a", moved_bytes=1e6, transfer_s=0.5)
    other = GroupTime(ranks=(2, 3), name="a", moved_bytes=1e3, transfer_s=0.01)
    assert find_slow_groups([one, other], (), step_s=0.6) == []


def test_groups_with_unknown_members_are_left_out() -> None:
    """Whether the one that is missing came last is not known."""
    steps, channels = job([0.05] * 4)
    del steps[4]
    assert [each.ranks for each in group_times(steps, channels)] == PAIRS[1:]


def test_ranks_without_steps_break_nothing() -> None:
    """Somebody who has just appeared has channels, and no steps yet."""
    steps, channels = job([0.05] * 4)
    assert group_times({rank: [] for rank in steps}, channels) == []
    assert find_slow_groups([], [], step_s=1.0) == []


def test_a_slow_group_is_named_where_nobodys_own_time_grew() -> None:
    """Its members are the suspects, the rest are victims."""
    before, now = job([0.05] * 4), job([0.05, 0.05, 0.05, 0.3], seed=1)
    groups = find_slow_groups(group_times(*now), group_times(*before), step_s=0.6)
    suspects = name_suspects(
        Evidence(
            now={rank: p for rank, mine in now[0].items() if (p := profile_of(mine)) is not None},
            healthy={rank: p for rank, mine in before[0].items() if (p := profile_of(mine)) is not None},
            groups=groups,
        )
    )
    assert [(each.ranks, each.cause) for each in suspects] == [([3, 7], "link")]
    assert suspects[0].victims == [0, 1, 2, 4, 5, 6]
