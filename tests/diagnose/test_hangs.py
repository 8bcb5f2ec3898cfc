"""The guilty ranks of a hang: by hand, generated from seeds, and real."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hangs_named import injected, left_out
from holdfast.diagnose.hangs import Hang, diagnose_hang
from holdfast.observe.flight import read_dumps
from holdfast.observe.flightdump import Dump, Operation
from stuck.cases import judge, make_case, solve
from stuck.job import Fault

REAL = Path(os.environ.get("HOLDFAST_DATA") or "/nowhere") / "flight_recorder"
SAMPLE = 5
"""Of each kind; ``benchmarks/hangs_named.py`` tries 500."""
GROUPS = {"w": [0, 1, 2, 3], "a": [0, 1], "b": [2, 3], "c": [0, 2], "d": [1, 2]}


def op(group: str, seq: int, state: str = "pending", **fields: Any) -> Operation:
    """Return a collective; its record is set by ``dump``."""
    usual: dict[str, Any] = {
        "record": 0,
        "group": group,
        "seq": seq,
        "op": seq,
        "kind": "all_reduce",
        "is_done": state == "done",
        "is_started": state == "started",
        "elements": 8,
        "dtypes": ["Float"],
    }
    return Operation(**(usual | fields))


def message(kind: str, src: int, dst: int) -> Operation:
    """Return an unfinished send or receive."""
    return op("w", 0, kind=kind, src=src, dst=dst, op=1)


def dump(rank: int, *operations: Operation, **fields: Any) -> Dump:
    """Return what a rank recorded, in order."""
    numbered = [msgspec.structs.replace(each, record=index) for index, each in enumerate(operations)]
    mine = {name: ranks for name, ranks in GROUPS.items() if rank in ranks}
    usual: dict[str, Any] = {"rank": rank, "groups": mine, "labels": {}, "operations": numbered}
    return Dump(**(usual | fields))


def named(hang: Hang) -> list[tuple[list[int], float]]:
    """Return who is blamed, and how surely."""
    return [(suspect.ranks, suspect.confidence) for suspect in hang.suspects]


def test_a_rank_that_did_not_come_is_guilty() -> None:
    """Its host is stuck; everybody else is its victim."""
    came = [dump(rank, op("w", 1, "done"), op("w", 2)) for rank in (0, 1, 3)]
    hang = diagnose_hang([*came, dump(2, op("w", 1, "done"))])
    assert named(hang) == [([2], 0.95)]
    assert (hang.victims, hang.missing, hang.suspects[0].victims) == ([0, 1, 3], [], [0, 1, 3])
    assert hang.suspects[0].evidence == [
        "rank 2 did not come to all_reduce 2 of group w, where ranks 0, 1 and 3 wait; "
        "its last one there was 1",
        "it has no unfinished operation: its host is stuck outside of communication",
    ]


def test_a_rank_that_is_blocked_elsewhere_is_a_victim() -> None:
    """Ranks 0 and 1 wait for 2 and 3 alike; 2 waits for 3 in a smaller group."""
    hang = diagnose_hang(
        [
            dump(0, op("w", 1, "done"), op("w", 2)),
            dump(1, op("w", 1, "done"), op("w", 2)),
            dump(2, op("w", 1, "done"), op("b", 1)),
            dump(3, op("w", 1, "done")),
        ]
    )
    assert named(hang) == [([3], 0.95)]
    assert hang.victims == [0, 1, 2]


def test_what_is_enqueued_behind_an_unfinished_operation_says_nothing() -> None:
    """Rank 2 has enqueued all that was asked of it, and is still in what its peer has finished."""
    hang = diagnose_hang(
        [
            dump(0, op("w", 1)),
            dump(1, op("w", 1)),
            dump(2, op("b", 1), op("w", 1)),
            dump(3, op("b", 1, "done"), op("w", 1)),
        ]
    )
    assert named(hang) == [([2], 0.9)]
    assert hang.suspects[0].evidence == [
        "rank 2 has not finished all_reduce 1 of group b, which rank 3 finished: its device is stuck or gone"
    ]


def test_whoever_left_a_broadcast_proves_nothing() -> None:
    """Its root may leave before anybody has come: less sure than of an all-reduce."""
    hang = diagnose_hang(
        [
            dump(0, op("a", 1, "done", kind="broadcast"), op("w", 2)),
            dump(1, op("a", 1, kind="broadcast"), op("w", 2)),
            dump(2, op("w", 2)),
            dump(3, op("w", 1, "done")),
        ]
    )
    assert named(hang) == [([3], 0.95), ([1], 0.7)]


def test_a_device_that_has_not_begun_what_others_are_inside_of_is_guilty() -> None:
    """Where timing is recorded."""
    hang = diagnose_hang([*(dump(rank, op("w", 1, "started")) for rank in (0, 1, 3)), dump(2, op("w", 1))])
    assert named(hang) == [([2], 0.85)]


def test_an_operation_to_which_all_came_is_a_doubt() -> None:
    """Nothing tells its ranks apart, and the confidence says so."""
    hang = diagnose_hang([dump(rank, op("w", 1)) for rank in range(4)])
    assert named(hang) == [([0, 1, 2, 3], 0.25)]
    assert "nothing in the dumps tells them apart" in hang.suspects[0].evidence[1]


def test_a_missing_rank_is_named_if_all_wait_for_it_alone() -> None:
    """With less confidence, and a word about its dump."""
    hang = diagnose_hang([dump(rank, op("w", 1)) for rank in (0, 1, 3)])
    assert (named(hang), hang.missing, hang.world_size) == ([([2], 0.6)], [2], 4)
    assert hang.suspects[0].cause == "death"
    assert "the dump of rank 2 is missing" in hang.suspects[0].evidence[0]


def test_a_missing_rank_is_not_blamed_for_what_another_explains() -> None:
    """Rank 3 did not come; whether rank 2 did, nobody knows."""
    hang = diagnose_hang([dump(0, op("w", 1)), dump(1, op("w", 1)), dump(3, op("b", 1, "done"))])
    assert (named(hang), hang.missing) == ([([3], 0.7)], [2])


def test_one_missing_rank_does_not_excuse_another() -> None:
    """Rank 1 might wait for rank 2, which waits for rank 3: that is no better known than rank 1 itself."""
    hang = diagnose_hang([dump(0, op("a", 1)), dump(2, op("b", 1), op("d", 1))])
    assert (named(hang), hang.missing) == ([([1], 0.6), ([3], 0.6)], [1, 3])


def test_a_rank_that_did_not_come_is_guilty_even_if_nobody_got_to_where_it_is_missed() -> None:
    """Ranks 0 and 2 wait for rank 1; what they enqueued behind that misses rank 3, which is idle."""
    before = op("w", 1, "done")
    hang = diagnose_hang(
        [
            dump(0, before, op("a", 1), op("c", 1), op("w", 2)),
            dump(1, before, op("a", 0, "done")),
            dump(2, before, op("c", 1), op("w", 2)),
            dump(3, before),
        ]
    )
    assert named(hang) == [([1], 0.95), ([3], 0.95)]


def test_what_a_lost_rank_has_not_finished_accuses_nobody() -> None:
    """The message of rank 2 was taken long ago; only rank 2 does not know."""
    hang = diagnose_hang(
        [
            dump(0),
            dump(1),
            dump(2, op("b", 1), message("send", 2, 0)),
            dump(3, op("b", 1, "done"), op("b", 2)),
        ]
    )
    assert named(hang) == [([2], 0.9)]


def test_a_receiver_waits_for_the_sender() -> None:
    """Rank 0 sent nothing and has nothing unfinished."""
    hang = diagnose_hang([dump(0), dump(1, message("recv", 0, 1))])
    assert named(hang) == [([0], 0.95)]


def test_a_chain_of_messages_is_followed_to_its_end() -> None:
    """3 waits for 2, 2 for 1, 1 for 0."""
    receivers = [dump(rank, message("recv", rank - 1, rank)) for rank in (1, 2, 3)]
    hang = diagnose_hang([dump(0), *receivers])
    assert (named(hang), hang.suspects[0].victims) == ([([0], 0.95)], [1, 2, 3])


def test_a_send_that_nobody_takes_excuses_nobody_in_a_circle() -> None:
    """Rank 0 has only a send left, which its receiver cannot take since it waits for rank 0."""
    hang = diagnose_hang([dump(0, message("send", 0, 1)), dump(1, op("a", 1))])
    assert named(hang) == [([0], 0.7)]


def test_two_ranks_that_receive_from_each_other_are_one_doubt() -> None:
    """A deadlock of the program itself has no single culprit."""
    hang = diagnose_hang([dump(0, message("recv", 1, 0)), dump(1, message("recv", 0, 1))])
    assert named(hang) == [([0, 1], 0.5)]
    assert "wait for each other in a circle" in hang.suspects[0].evidence[0]


def test_an_idle_rank_of_a_backend_that_records_no_messages_is_a_doubt() -> None:
    """It may wait for a message that nobody sees."""
    hang = diagnose_hang([dump(0, op("a", 2)), dump(1, op("a", 1, "done"), has_unseen_messages=True)])
    assert named(hang) == [([1], 0.5)]


def test_own_counts_are_believed_where_there_are_no_entries() -> None:
    """A dump of unfinished operations alone says by its counts who has finished and who did not come."""
    waiting = [dump(rank, op("w", 6), enqueued={"w": 6}) for rank in (0, 1)]
    hang = diagnose_hang(
        [*waiting, dump(2, enqueued={"w": 5}), dump(3, op("b", 1), enqueued={"w": 5, "b": 1})]
    )
    assert named(hang) == [([2], 0.95)]


def test_own_counts_are_not_believed_where_messages_are_counted_too() -> None:
    """By its count rank 2 would have done the sixth collective; by its entries it has done the first."""
    hang = diagnose_hang(
        [
            dump(0, op("w", 2, op=9), enqueued={"w": 9}),
            dump(1, op("w", 2, op=9), enqueued={"w": 9}),
            dump(2, op("w", 1, "done", op=1), enqueued={"w": 6}),
            dump(3, op("w", 2, op=9), enqueued={"w": 9}),
        ]
    )
    assert named(hang) == [([2], 0.95)]


def test_a_job_that_does_not_hang_has_no_suspects() -> None:
    """All is done, or there was nothing."""
    nobody = Hang(suspects=[], victims=[], missing=[], world_size=4)
    assert diagnose_hang([dump(rank, op("w", 1, "done")) for rank in range(4)]) == nobody
    assert diagnose_hang([dump(rank) for rank in range(4)]) == nobody


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (
            {"kind": "broadcast"},
            "rank 2 called broadcast of 8 Float; ranks 0, 1 and 3 called all_reduce of 8 Float",
        ),
        (
            {"elements": 9},
            "rank 2 called all_reduce of 9 Float; ranks 0, 1 and 3 called all_reduce of 8 Float",
        ),
        (
            {"dtypes": ["Long"]},
            "rank 2 called all_reduce of 8 Long; ranks 0, 1 and 3 called all_reduce of 8 Float",
        ),
    ],
)
def test_a_rank_that_means_something_else_is_told_with_both_sides(odd: dict[str, Any], words: str) -> None:
    """Another kind, another size, another type of number; what follows in the group is not told again."""
    came = [dump(rank, op("w", 1), op("w", 2)) for rank in (0, 1, 3)]
    hang = diagnose_hang([*came, dump(2, op("w", 1, **odd), op("w", 2, **odd))])
    assert named(hang) == [([2], 0.8)]
    assert hang.suspects[0].evidence == [f"the ranks disagree about collective 1 of group w: {words}"]
    assert (hang.suspects[0].cause, hang.victims) == ("hang", [0, 1, 3])


def test_two_sides_of_the_same_size_are_both_named() -> None:
    """Nobody can say which one is right."""
    hang = diagnose_hang([dump(0, op("a", 1)), dump(1, op("a", 1, elements=9))])
    assert named(hang) == [([0, 1], 0.5)]


@pytest.mark.parametrize("kind", ["all_to_all", "gather", "scatter", "_all_gather_base", "reduce_scatter"])
def test_uneven_sizes_are_normal_where_they_are(kind: str) -> None:
    """All-to-all, gathering and scattering may differ between ranks."""
    hang = diagnose_hang([dump(rank, op("w", 1, kind=kind, elements=rank)) for rank in range(4)])
    assert "disagree" not in str(hang.suspects)


# --- generated --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("fault", "has_timing"), [("host", None), ("device", True), ("lost", None), ("dead", None)]
)
def test_the_ranks_that_stopped_are_named(fault: Fault, has_timing: bool | None, count: int) -> None:
    """In jobs whose hosts run ahead, however they record: never a wrong one, and seldom a doubt."""
    cases = [make_case(seed, fault, count=count, has_timing=has_timing) for seed in range(SAMPLE)]
    outcomes = {case.words: solve(case) for case in cases}
    assert "wrong" not in outcomes.values(), outcomes
    assert Counter(outcomes.values())["exact"] >= SAMPLE - 1, outcomes


def test_a_stuck_device_is_narrowed_down_without_timing() -> None:
    """Its records are those of its peers: all of them are named, and the confidence says so."""
    for seed in range(SAMPLE):
        case = make_case(seed, "device", has_timing=False)
        assert solve(case) in ("narrowed", "exact"), case.words


def test_a_missing_dump_of_a_victim_makes_no_one_guilty() -> None:
    """The answer is the same without the dump of any one rank that waits."""
    case = make_case(1, "host")
    for each in case.dumps:
        if each.rank not in case.guilty:
            hang = diagnose_hang([dump for dump in case.dumps if dump is not each])
            assert judge(hang, case.guilty) == "exact", (each.rank, case.words)
            assert hang.missing == [each.rank]


# --- real -------------------------------------------------------------------------------------


@pytest.mark.external
@pytest.mark.parametrize("name", ["gpu_error_1st", "lock_gil_1st"])
def test_the_injected_ranks_of_real_jobs_are_named(name: str) -> None:
    """Exactly those; and nobody else without the dump of any one rank."""
    if not os.environ.get("HOLDFAST_DATA"):
        pytest.skip("needs HOLDFAST_DATA")
    dumps, guilty = read_dumps([REAL / name]), injected(REAL / name)
    hang = diagnose_hang(dumps)
    assert [suspect.ranks for suspect in hang.suspects] == [[rank] for rank in guilty]
    assert all(suspect.confidence > 0.8 for suspect in hang.suspects)
    assert hang.victims == [rank for rank in range(16) if rank not in guilty]
    assert {rank: left_out(dumps, rank, guilty) for rank in range(16)} == dict.fromkeys(range(16), "exact")
