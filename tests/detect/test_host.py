"""Rates between two looks at a node: differences, and what is not known."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.detect.counters import (
    GroupTimes,
    NodeCounters,
    Pressure,
    ProcessCounters,
    Sample,
    ThreadTimes,
)
from holdfast.detect.host import HostStrain, NodeRates, ProcessRates, node_rates, rates, strain_between

PID = 7


def process(**fields: Any) -> ProcessCounters:
    """Return the counters of a worker, changed where asked."""
    usual: dict[str, Any] = {
        "pid": PID,
        "start_ticks": 100,
        "state": "S",
        "cpu_s": 10.0,
        "minor_faults": 1000,
        "major_faults": 10,
        "rss_bytes": 4096,
    }
    return ProcessCounters(**(usual | fields))


def threads(**waited_s: float) -> dict[int, ThreadTimes]:
    """Return threads by number (``t7``) that waited for so long."""
    return {int(name[1:]): ThreadTimes(ran_s=1.0, waited_s=each) for name, each in waited_s.items()}


def between(before: ProcessCounters, after: ProcessCounters, elapsed_s: float = 2.0) -> ProcessRates:
    """Return rates that must be there."""
    found = rates(before, after, elapsed_s)
    assert found is not None
    return found


def test_counters_become_rates_per_second() -> None:
    """Every counter is divided by the time between the looks, and what is a level stays one."""
    before = process(voluntary_switches=5, involuntary_switches=6, read_bytes=0, written_bytes=10)
    after = process(
        state="R",
        cpu_s=13.0,
        minor_faults=1500,
        major_faults=16,
        rss_bytes=8192,
        voluntary_switches=15,
        involuntary_switches=6,
        read_bytes=4096,
        written_bytes=10,
        swapped_bytes=64,
    )
    assert between(before, after) == ProcessRates(
        state="R",
        cpu_share=1.5,
        minor_faults_per_s=250.0,
        major_faults_per_s=3.0,
        rss_bytes=8192,
        voluntary_switches_per_s=5.0,
        involuntary_switches_per_s=0.0,
        read_bytes_per_s=2048.0,
        written_bytes_per_s=0.0,
        swapped_bytes=64,
    )


@pytest.mark.parametrize("change", [{"start_ticks": 101}, {"pid": 8}])
def test_another_process_has_no_rates(change: dict[str, int]) -> None:
    """A process that took the place of another is not compared with it, though its counters are larger."""
    assert rates(process(), process(cpu_s=99.0, **change), 1.0) is None


@pytest.mark.parametrize("elapsed_s", [0.0, -1.0])
def test_no_time_has_no_rates(elapsed_s: float) -> None:
    """Where no time passed, nothing is divided by it."""
    node = NodeCounters(total_ticks=1, context_switches=1)
    assert rates(process(), process(), elapsed_s) is None
    assert node_rates(node, node, elapsed_s) == NodeRates()


def test_a_counter_that_went_back_is_unknown() -> None:
    """Only the rate of that counter is None."""
    found = between(process(), process(cpu_s=9.0, minor_faults=1002))
    assert (found.cpu_share, found.minor_faults_per_s) == (None, 1.0)


def test_what_is_not_counted_stays_unknown() -> None:
    """A machine without a counter has None for it and never 0, in one look or in both."""
    for before, after in ((None, None), (None, 5), (5, None)):
        found = between(process(read_bytes=before), process(read_bytes=after))
        assert found.read_bytes_per_s is None
    found = between(process(), process())
    assert (found.run_queue_share, found.throttled_share, found.block_io_share) == (None, None, None)
    assert found.stolen_share is None


# --- threads ----------------------------------------------------------------------------------


def test_waits_are_told_in_sum_and_of_the_thread_that_waited_most() -> None:
    """The thread that waits now counts, not the one that has waited most in its life."""
    before = process(threads=threads(t7=500.0, t8=1.0, t9=0.0))
    after = process(threads=threads(t7=500.2, t8=2.8, t9=1.0))
    found = between(before, after)
    assert found.run_queue_share == pytest.approx(1.5)
    assert found.main_run_queue_share == pytest.approx(0.9)


def test_threads_that_come_and_go_leave_the_rest_alone() -> None:
    """A new one counts from its start, one that left makes nothing negative, a number may be used again."""
    before = process(threads=threads(t7=1.0, t8=90.0, t9=50.0))
    after = process(threads=threads(t7=1.0, t9=0.5, t10=0.2))
    found = between(before, after, 1.0)
    assert found.run_queue_share == pytest.approx(0.7)
    assert found.main_run_queue_share == pytest.approx(0.5)


def test_a_wait_that_began_long_before_fills_one_second_per_second() -> None:
    """A thread cannot wait longer than the time there was."""
    found = between(process(threads=threads(t8=0.0)), process(threads=threads(t8=30.0)), 1.0)
    assert (found.run_queue_share, found.main_run_queue_share) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("states", "switches", "waited"),
    [
        pytest.param("RR", (4, 4), 1.0, id="starved"),
        pytest.param("RR", (4, 5), 0.0, id="slept in between"),
        pytest.param("SR", (4, 4), 0.0, id="slept at first"),
        pytest.param("RS", (4, 4), 0.0, id="sleeps now"),
        pytest.param("RR", (None, None), 0.0, id="not known"),
    ],
)
def test_a_wait_that_is_not_over_counts(
    states: str, switches: tuple[int | None, int | None], waited: float
) -> None:
    """The kernel adds a wait when it ends; a thread that neither slept nor ran has waited all the time."""
    same = threads(t7=0.0)
    before, after = (
        process(threads=same, state=state, voluntary_switches=count)
        for state, count in zip(states, switches, strict=True)
    )
    assert between(before, after).main_run_queue_share == waited


def test_a_thread_that_ran_all_the_time_has_not_waited() -> None:
    """Never having slept is no sign of contention by itself."""
    before = process(threads={PID: ThreadTimes(ran_s=1.0)}, state="R", voluntary_switches=1)
    after = process(threads={PID: ThreadTimes(ran_s=3.0)}, state="R", voluntary_switches=1)
    found = between(before, after)
    assert (found.main_run_queue_share, found.main_idle_share) == (0.0, 0.0)


def test_idle_is_what_the_busiest_thread_leaves() -> None:
    """Running and waiting for a processor are both not idle."""
    before = process(threads={7: ThreadTimes(), 8: ThreadTimes()})
    after = process(threads={7: ThreadTimes(ran_s=0.5, waited_s=0.7), 8: ThreadTimes(ran_s=0.9)})
    assert between(before, after).main_idle_share == pytest.approx(0.4)


# --- quotas and steal -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("throttled_s", "cpu_s", "held"),
    [
        pytest.param(0.5, 0.5, 0.5, id="one thread, half a processor"),
        pytest.param(8.0, 8.0, 0.5, id="16 threads, 8 processors"),
        pytest.param(0.1, 0.3, 0.1, id="one thread that sleeps most of the time"),
        pytest.param(0.0, 4.0, 0.0, id="a quota that does not bite"),
    ],
)
def test_a_quota_holds_up_each_thread_by_its_part(throttled_s: float, cpu_s: float, held: float) -> None:
    """Groups count every processor; what one thread loses follows from what the group got."""
    before = process(groups={"/g": GroupTimes(throttled_s=3.0, cpu_s=1.0)})
    after = process(groups={"/g": GroupTimes(throttled_s=3.0 + throttled_s, cpu_s=1.0 + cpu_s)})
    found = between(before, after, 1.0)
    assert found.throttled_share == pytest.approx(throttled_s)
    assert found.held_share == pytest.approx(held)


def test_a_process_moved_to_another_group_is_not_charged_with_its_past() -> None:
    """Only groups seen in both looks count; a group around them still does."""
    before = process(groups={"/a": GroupTimes(throttled_s=0.0), "/": GroupTimes(throttled_s=1.0)})
    after = process(groups={"/b": GroupTimes(throttled_s=900.0), "/": GroupTimes(throttled_s=1.5)})
    assert between(before, after, 1.0).throttled_share == pytest.approx(0.5)
    alone = msgspec.structs.replace(after, groups={"/b": GroupTimes(throttled_s=900.0)})
    assert between(before, alone, 1.0).throttled_share is None


def test_steal_is_what_a_thread_lost_of_what_it_asked_for() -> None:
    """Half of the asked time stolen means that a thread which ran for half a second lost as much."""
    before = NodeCounters(total_ticks=0, idle_ticks=0, iowait_ticks=0, steal_ticks=0)
    after = NodeCounters(total_ticks=800, idle_ticks=580, iowait_ticks=20, steal_ticks=100)
    node = node_rates(before, after, 1.0)
    assert (node.steal_share, node.stolen_of_busy, node.iowait_share) == (0.125, 0.5, 0.025)
    found = rates(process(), process(cpu_s=10.5), 1.0, node)
    assert found is not None
    assert found.stolen_share == pytest.approx(0.5)


# --- nodes ------------------------------------------------------------------------------------


def test_a_node_has_shares_of_time_and_of_segments() -> None:
    """Pressure is a share of the time, retransmission one of what was sent."""
    before = NodeCounters(
        io_pressure=Pressure(some_s=1.0, full_s=0.0),
        memory_pressure=Pressure(some_s=1.0),
        sent_segments=100,
        retransmitted_segments=0,
        swapped_in_pages=3,
        context_switches=5,
    )
    after = NodeCounters(
        io_pressure=Pressure(some_s=2.0, full_s=0.5),
        memory_pressure=Pressure(some_s=1.5),
        sent_segments=300,
        retransmitted_segments=10,
        swapped_in_pages=7,
        context_switches=25,
        running=3,
        available_bytes=9,
    )
    assert node_rates(before, after, 2.0) == NodeRates(
        io_pressure_share=0.5,
        io_full_share=0.25,
        memory_pressure_share=0.25,
        retransmit_share=0.05,
        swapped_in_per_s=2.0,
        context_switches_per_s=10.0,
        running=3,
        available_bytes=9,
    )


def test_nothing_sent_is_no_share_of_it() -> None:
    """Without a segment sent, how many were sent again is not known."""
    node = NodeCounters(sent_segments=5, retransmitted_segments=1)
    assert node_rates(node, node, 1.0).retransmit_share is None


def test_strain_names_those_seen_twice() -> None:
    """A rank that came, left or was replaced between the looks has no rates; all others know their node."""
    before = Sample(
        at_s=5.0,
        node=NodeCounters(context_switches=0),
        processes={0: process(), 1: process(), 2: process()},
    )
    after = Sample(
        at_s=7.0,
        node=NodeCounters(context_switches=8),
        processes={0: process(cpu_s=11.0), 2: process(start_ticks=101), 3: process()},
    )
    node = NodeRates(context_switches_per_s=4.0)
    worker = ProcessRates(
        cpu_share=0.5, minor_faults_per_s=0.0, major_faults_per_s=0.0, rss_bytes=4096, node=node
    )
    assert strain_between(before, after) == HostStrain(elapsed_s=2.0, node=node, ranks={0: worker})


def test_strain_survives_the_wire() -> None:
    """What a guard tells of its node is the same where it is read."""
    sample = Sample(at_s=1.0, node=NodeCounters(running=1), processes={3: process(threads=threads(t7=1.0))})
    assert msgspec.json.decode(msgspec.json.encode(sample), type=Sample) == sample
    strain = strain_between(sample, msgspec.structs.replace(sample, at_s=2.0))
    assert msgspec.json.decode(msgspec.json.encode(strain), type=HostStrain) == strain


_COUNTS = st.none() | st.floats(0, 1e9)
_TIMES = st.builds(ThreadTimes, ran_s=st.floats(0, 1e6), waited_s=st.floats(0, 1e6))
_GROUPS = st.builds(GroupTimes, throttled_s=st.floats(0, 1e6), cpu_s=_COUNTS)
_PROCESSES = st.builds(
    process,
    state=st.sampled_from("RSDT"),
    cpu_s=st.floats(0, 1e6),
    threads=st.none() | st.dictionaries(st.integers(6, 9), _TIMES),
    voluntary_switches=st.none() | st.integers(0, 2),
    groups=st.none() | st.dictionaries(st.sampled_from(["/a", "/b"]), _GROUPS),
    block_io_delay_s=_COUNTS,
)


@given(_PROCESSES, _PROCESSES, st.floats(1e-3, 1e4), st.floats(0, 1))
def test_shares_stay_within_their_bounds(
    before: ProcessCounters, after: ProcessCounters, elapsed_s: float, stolen: float
) -> None:
    """Whatever two looks say, no rate is negative, and a share of one thread's time is at most 1."""
    found = rates(before, after, elapsed_s, NodeRates(stolen_of_busy=stolen))
    assert found is not None
    numbers = msgspec.structs.asdict(found)
    assert all(each is None or each >= 0 for name, each in numbers.items() if name not in ("state", "node"))
    for name in ("main_run_queue_share", "main_idle_share", "held_share", "stolen_share"):
        assert numbers[name] is None or numbers[name] <= 1
