"""find_reason: why a rank's own time grew."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.diagnose.causes import Sign, find_reason
from holdfast.diagnose.profiles import Profile
from holdfast.findings import Cause

QUOTA = Sign(cause="cpu_contention", strength=0.4, evidence="was held up 0.4 s per second by its CPU quota")
FAULTS = Sign(cause="host_memory", strength=0.2, evidence="took 200000 page faults per second")
DISK = Sign(cause="storage", strength=0.3, evidence="waited 0.3 s per second for its drive")
LINE = Sign(
    cause="unknown", strength=0.5, evidence="it is in train.py:9 step for 50%", function="train.py:9 step"
)


def a_profile(*, own_s: float = 0.3, rank: float = 0, **parts: float) -> Profile:
    """Return a profile that computes on the CPU and waits a little."""
    fields: dict[str, Any] = {
        "data_s": 0.01,
        "gc_s": 0.0,
        "save_s": 0.0,
        "cpu_s": 0.28,
        "work": 1000.0,
    }
    return Profile(rank=int(rank), steps=20, duration_s=own_s + 0.05, wait_s=0.05, **(fields | parts))


BEFORE = a_profile()
PEERS = [a_profile(rank=rank) for rank in (1, 2, 3)]


@pytest.mark.parametrize(
    ("part", "cause"), [("data_s", "data_loading"), ("gc_s", "garbage_collection"), ("save_s", "storage")]
)
def test_a_part_that_grew_has_its_name(part: str, cause: Cause) -> None:
    """Most of the growth is in it."""
    now = a_profile(own_s=0.5, **{part: 0.21})
    reason = find_reason(now, BEFORE, PEERS, ())
    assert reason.cause == cause
    assert reason.certainty > 0.9
    assert "210 ms of a step" in reason.evidence[0]


def test_the_greater_of_two_parts_is_the_reason() -> None:
    """Both grew; one by more."""
    now = a_profile(own_s=0.6, data_s=0.12, gc_s=0.18)
    assert find_reason(now, BEFORE, PEERS, ()).cause == "garbage_collection"


def test_a_part_that_was_always_large_is_no_reason() -> None:
    """A slow loader that is as slow as ever did not slow down anything."""
    before = a_profile(own_s=0.5, data_s=0.2)
    now = a_profile(own_s=0.7, data_s=0.2, cpu_s=0.5)
    assert find_reason(now, before, PEERS, ()).cause == "compute"


def test_a_loader_that_waits_for_its_drive_is_slow_storage() -> None:
    """What the host says makes the part more exact."""
    now = a_profile(own_s=0.5, data_s=0.21)
    reason = find_reason(now, BEFORE, PEERS, [DISK])
    assert reason.cause == "storage"
    assert DISK.evidence in reason.evidence


def test_more_input_at_the_same_speed_is_an_imbalance() -> None:
    """Its time per element is as the others'."""
    now = a_profile(own_s=0.58, work=2000.0, cpu_s=0.56)
    reason = find_reason(now, BEFORE, PEERS, ())
    assert reason.cause == "input_imbalance"
    assert "2000 elements" in reason.evidence[0]


def test_more_input_does_not_excuse_a_rank_that_is_slow_besides() -> None:
    """A tenth more to do is not why it takes twice as long."""
    now = a_profile(own_s=0.6, work=1100.0, cpu_s=0.58)
    assert find_reason(now, BEFORE, PEERS, ()).cause == "compute"


def test_work_that_nobody_knows_is_not_compared() -> None:
    """Loaders of their own making tell no number of elements."""
    now = a_profile(own_s=0.6, work=0.0, cpu_s=0.58)
    silent = [a_profile(rank=rank, work=0.0) for rank in (1, 2)]
    assert find_reason(now, BEFORE, silent, ()).cause == "compute"
    assert find_reason(a_profile(own_s=0.6, cpu_s=0.58), BEFORE, [], ()).cause == "compute"


def test_a_thread_that_did_not_get_to_run_was_kept_from_it() -> None:
    """Its own time grew, its processor's time did not."""
    reason = find_reason(a_profile(own_s=0.6), BEFORE, PEERS, ())
    assert reason.cause == "cpu_contention"
    assert "kept from running" in reason.evidence[0]


def test_a_thread_that_waits_for_an_accelerator_was_not_kept_from_running() -> None:
    """It never was on a processor much: its own time is the accelerator's."""
    before, now = a_profile(cpu_s=0.05), a_profile(own_s=0.6, cpu_s=0.05)
    assert find_reason(now, before, PEERS, ()).cause == "compute"


def test_the_strongest_sign_of_the_host_is_the_reason() -> None:
    """With all that was said about that cause, and nothing about others."""
    more = Sign(cause="cpu_contention", strength=0.1, evidence="waited 0.1 s per second for a processor")
    reason = find_reason(a_profile(own_s=0.6), BEFORE, PEERS, [FAULTS, QUOTA, more])
    assert reason.cause == "cpu_contention"
    assert reason.evidence == [QUOTA.evidence, more.evidence]


def test_a_weak_sign_is_none() -> None:
    """What explains a twentieth of the time does not explain a slowdown."""
    weak = Sign(cause="host_memory", strength=0.05, evidence="a few page faults")
    assert find_reason(a_profile(own_s=0.6, cpu_s=0.58), BEFORE, PEERS, [weak]).cause == "compute"


def test_a_line_of_code_is_told_beside_the_cause() -> None:
    """It says where, not why."""
    reason = find_reason(a_profile(own_s=0.6, cpu_s=0.58), BEFORE, PEERS, [LINE])
    assert (reason.cause, reason.function) == ("compute", "train.py:9 step")
    assert reason.evidence[-1] == LINE.evidence


def test_a_line_whose_kind_is_known_is_the_cause() -> None:
    """A line that copies memory is why, if the hosts say nothing stronger."""
    line = Sign(
        cause="host_memory", strength=0.6, evidence="in train.py:7: x.clone()", function="train.py:7 f"
    )
    reason = find_reason(a_profile(own_s=0.6, cpu_s=0.58), BEFORE, PEERS, [line])
    assert (reason.cause, reason.function) == ("host_memory", "train.py:7 f")
    assert reason.evidence.count(line.evidence) == 1


def test_no_growth_breaks_nothing() -> None:
    """A rank that got faster is not divided by nothing."""
    assert find_reason(a_profile(own_s=0.2, cpu_s=0.19), BEFORE, PEERS, ()).cause == "compute"
