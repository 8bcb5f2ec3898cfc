"""What is out of the ordinary about a host, in words and numbers."""

from __future__ import annotations

from typing import get_args

import pytest

from holdfast.detect.host import NodeRates, ProcessRates
from holdfast.detect.signs import HostCause, HostSign, explain
from holdfast.findings import Cause

CALM = ProcessRates(
    main_run_queue_share=0.01,
    run_queue_share=0.01,
    held_share=0.0,
    stolen_share=0.0,
    minor_faults_per_s=300.0,
    major_faults_per_s=0.0,
    main_idle_share=0.5,
    node=NodeRates(memory_pressure_share=0.0, io_pressure_share=0.0, swapped_in_per_s=0.0),
)
WAITS = ProcessRates(main_run_queue_share=0.48, run_queue_share=0.5)


def test_a_worker_that_waits_for_a_processor_is_told_with_its_numbers() -> None:
    """The sentence has the number of now, that of healthy times and that of the others."""
    sign = HostSign(
        cause="cpu_contention",
        strength=0.48 - 0.01,
        evidence="waited 0.48 s per second for a processor, 0.01 when healthy, 0.01 on the other ranks",
    )
    assert explain({0: CALM, 1: WAITS}, {0: CALM, 1: CALM}) == {0: [], 1: [sign]}


def test_the_sum_over_threads_is_told_where_it_is_much_more() -> None:
    """The strength is that of the thread that waited most, however many waited beside it."""
    many = ProcessRates(main_run_queue_share=0.4, run_queue_share=3.2)
    [sign] = explain({0: many}, {0: CALM})[0]
    assert sign.strength == pytest.approx(0.39)
    assert (
        sign.evidence
        == "waited 0.40 s per second for a processor (3.20 over all its threads), 0.01 when healthy"
    )


def test_a_whole_node_in_trouble_is_told_for_each_rank() -> None:
    """That the others wait as long does not make it ordinary."""
    found = explain({0: WAITS, 1: WAITS}, {0: CALM, 1: CALM})
    assert [sign.against for signs in found.values() for sign in signs] == ["healthy", "healthy"]


@pytest.mark.parametrize("healthy", [{}, {1: WAITS}, {1: ProcessRates()}])
def test_without_a_better_past_the_others_say_what_is_ordinary(healthy: dict[int, ProcessRates]) -> None:
    """A worker that was never healthy, or is not known to have been, is held against the others."""
    [sign] = explain({0: CALM, 1: WAITS, 2: CALM}, healthy)[1]
    assert (sign.cause, sign.against) == ("cpu_contention", "others")
    assert sign.strength == pytest.approx(0.47)


def test_little_and_usual_things_are_no_signs() -> None:
    """Neither a few percent of the time, nor a little more than there always was, nor what nobody counts."""
    nearly = ProcessRates(main_run_queue_share=0.055)
    used_to_it = {0: ProcessRates(main_run_queue_share=0.40)}
    assert explain({0: nearly}, {0: CALM}) == {0: []}
    assert explain({0: WAITS}, used_to_it) == {0: []}
    assert explain({0: ProcessRates()}, {0: CALM}) == {0: []}
    assert explain({0: CALM, 1: ProcessRates(main_run_queue_share=0.1)}, {}) == {0: [], 1: []}
    assert explain({0: WAITS}, {}) == {0: []}
    assert explain({}, {0: CALM}) == {}


@pytest.mark.parametrize(
    ("now", "cause", "strength", "words"),
    [
        (
            ProcessRates(held_share=0.6),
            "cpu_contention",
            0.6,
            "was held up 0.60 s per second by its CPU quota",
        ),
        (ProcessRates(stolen_share=0.3), "cpu_contention", 0.3, "lost 0.30 s per second to other virtual"),
        (
            ProcessRates(minor_faults_per_s=200_300.0),
            "host_memory",
            0.2,
            "took 200300 page faults per second",
        ),
        (ProcessRates(major_faults_per_s=2000.0), "host_memory", 0.2, "had 2000 pages per second read back"),
        (ProcessRates(major_faults_per_s=1e6), "host_memory", 1.0, "had 1000000 pages"),
        (
            ProcessRates(node=NodeRates(memory_pressure_share=0.4)),
            "host_memory",
            0.4,
            "short of memory for 0.40",
        ),
        (ProcessRates(node=NodeRates(swapped_in_per_s=3000.0)), "host_memory", 0.3, "swaps in 3000 pages"),
        (ProcessRates(node=NodeRates(io_pressure_share=0.7)), "storage", 0.7, "waits 0.70 s per second for"),
    ],
)
def test_each_way_to_lose_time_is_told(
    now: ProcessRates, cause: HostCause, strength: float, words: str
) -> None:
    """Every measure leads to its cause, with the share of time that was lost."""
    [sign] = explain({0: now}, {0: CALM})[0]
    assert sign.cause == cause
    assert sign.strength == pytest.approx(strength)
    assert words in sign.evidence


def test_the_delay_of_the_worker_is_better_than_that_of_its_node() -> None:
    """Where the kernel counts how long the worker itself waited for storage, others' waits are left out."""
    node = NodeRates(io_pressure_share=0.9)
    healthy = {0: ProcessRates(block_io_share=0.0, node=NodeRates(io_pressure_share=0.0))}
    assert explain({0: ProcessRates(block_io_share=0.0, node=node)}, healthy) == {0: []}
    [sign] = explain({0: ProcessRates(block_io_share=0.2, node=node)}, healthy)[0]
    assert sign.evidence == "waited 0.20 s per second for storage, 0.00 when healthy"


def test_trouble_of_the_node_costs_a_worker_no_more_than_it_was_idle() -> None:
    """A worker that computes all the time is not held up by what others wait for."""
    node = NodeRates(io_pressure_share=0.9, memory_pressure_share=0.9)
    busy, half = (ProcessRates(main_idle_share=idle, node=node) for idle in (0.0, 0.3))
    found = explain({0: busy, 1: half}, {0: CALM, 1: CALM})
    assert found[0] == []
    assert [sign.strength for sign in found[1]] == [0.3, 0.3]


def test_measures_of_one_cause_are_one_sign_and_the_strongest_is_first() -> None:
    """Time that a quota takes is also waited for a processor, so the two are not added up."""
    now = ProcessRates(main_run_queue_share=0.5, held_share=0.3, minor_faults_per_s=800_300.0)
    memory, cpu = explain({0: now}, {0: CALM})[0]
    assert (memory.cause, cpu.cause) == ("host_memory", "cpu_contention")
    assert [memory.strength, cpu.strength] == pytest.approx([0.8, 0.49])
    assert [part.split(" 0.")[0] for part in cpu.evidence.split("; ")] == ["waited", "was held up"]


def test_causes_are_those_of_suspects() -> None:
    """A sign's cause can be written into a suspect as it is."""
    assert set(get_args(HostCause)) <= set(get_args(Cause))
