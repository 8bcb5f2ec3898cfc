"""Who died first, and how it is told."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import make_death
from holdfast.guard.deaths import (
    cause,
    describe,
    first_of_nodes,
    first_to_die,
    is_victim,
    others,
    shell_code,
)
from holdfast.values import Death

LOST_PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:9"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"error": LOST_PEER}, True),
        (
            {"error": "torch.distributed.DistBackendError: NCCL error", "traceback": "ncclRemoteError: x"},
            True,
        ),
        ({"error": "DistStoreError: Timed out waiting for clients"}, True),
        ({"error": "ConnectionResetError: [Errno 104] Connection reset by peer"}, True),
        ({"traceback": "Watchdog caught collective operation timeout: WorkNCCL", "signal": "SIGABRT"}, True),
        ({"error": "ValueError: the input is broken"}, False),
        ({"error": "torch.OutOfMemoryError: CUDA out of memory"}, False),
        ({"signal": "SIGKILL"}, False),
        ({}, False),
    ],
)
def test_a_victim_is_known_by_its_words(fields: dict[str, str], expected: bool) -> None:
    """Words about lost peers, in the error or in the traceback, whatever their case."""
    assert is_victim(make_death(**fields)) is expected


def test_the_earliest_that_is_no_victim_died_first() -> None:
    """A victim may be seen before the one that caused it."""
    victim = make_death(rank=0, seen_s=1.0, error=LOST_PEER)
    killed = make_death(rank=1, seen_s=2.0, signal="SIGKILL")
    raised = make_death(rank=2, seen_s=3.0, error="ValueError: x")
    assert first_to_die([victim, raised, killed]) == killed


def test_a_victim_is_blamed_when_nobody_else_is_there() -> None:
    """Then the earliest, and of two at one moment the lower rank."""
    late, early, same = (
        make_death(rank=rank, seen_s=seen_s, error=LOST_PEER)
        for rank, seen_s in ((0, 2.0), (5, 1.0), (3, 1.0))
    )
    assert first_to_die([late, early, same]) == same


def test_nobody_died_first_where_nobody_died() -> None:
    """No deaths, no first."""
    assert (first_to_die([]), first_of_nodes([])) == (None, None)


def test_among_nodes_the_order_of_reports_counts() -> None:
    """Clocks of two nodes are never compared."""
    victim = make_death(node=0, seen_s=1.0, error=LOST_PEER)
    second = make_death(node=1, seen_s=900.0, error="ValueError: x")
    third = make_death(node=2, seen_s=2.0, signal="SIGKILL")
    assert first_of_nodes([victim, second, third]) == second
    assert first_of_nodes([victim]) == victim


@given(st.lists(st.builds(make_death, rank=st.integers(0, 9), seen_s=st.floats(0, 9)), min_size=1))
def test_the_first_is_one_of_the_dead_and_none_is_earlier(deaths: list[Death]) -> None:
    """Whatever the order in which they were seen."""
    first = first_to_die(deaths)
    assert first in deaths
    assert first is not None
    assert first.seen_s == min(death.seen_s for death in deaths)
    assert first_to_die(deaths[::-1]) == first


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"error": "ValueError: x"}, "ValueError: x (exit code 1)"),
        ({"signal": "SIGUSR1", "exit_code": 138}, "SIGUSR1 (exit code 138)"),
        ({"exit_code": 3}, "exit code 3"),
        ({"exit_code": 1, "traceback": "Fatal Python error: x"}, "exit code 1"),
    ],
)
def test_the_cause_is_told_with_its_code(fields: dict[str, object], line: str) -> None:
    """The error if there is one, else the signal with a hint, else the code."""
    assert cause(make_death(**fields)) == line
    assert describe(make_death(**fields)) == f"rank 1 on host a died first: {line}"


@pytest.mark.parametrize(
    ("name", "hint"), [("SIGKILL", "kill -9"), ("SIGSEGV", "native code"), ("SIGBUS", "/dev/shm")]
)
def test_a_signal_that_says_little_by_itself_comes_with_a_hint(name: str, hint: str) -> None:
    """People should not need to look it up."""
    told = cause(make_death(signal=name, exit_code=128 + signal.Signals[name]))
    assert told.startswith(f"{name} (exit code {128 + signal.Signals[name]}")
    assert hint in told


def test_the_description_is_one_line_whatever_the_error() -> None:
    """Errors of native code often have many lines; the one line is the last thing people see."""
    assert (
        len(describe(make_death(error="RuntimeError: NCCL error\nncclUnhandledCudaError\n")).splitlines())
        == 1
    )


@pytest.mark.parametrize(
    ("ranks_and_errors", "lines"),
    [
        ([], []),
        ([(0, "ValueError: x")], ["rank 0 died of the same error"]),
        ([(0, LOST_PEER)], ["rank 0 ended as a consequence"]),
        (
            [(0, "ValueError: x"), (2, None), (3, "ValueError: x"), (4, LOST_PEER)],
            ["ranks 0, 3 died of the same error", "ranks 2, 4 ended as a consequence"],
        ),
    ],
)
def test_the_others_are_told_by_kind(
    ranks_and_errors: list[tuple[int, str | None]], lines: list[str]
) -> None:
    """Those with the same error, and those that died because of it."""
    first = make_death(rank=1, error="ValueError: x")
    deaths = [first] + [make_death(rank=rank, error=error) for rank, error in ranks_and_errors]
    assert others(first, deaths) == lines


def test_deaths_without_an_error_are_not_called_the_same() -> None:
    """Two kills have no error in common."""
    first, second = make_death(rank=0, signal="SIGKILL"), make_death(rank=1, signal="SIGKILL")
    assert others(first, [first, second]) == ["rank 1 ended as a consequence"]


@pytest.mark.parametrize(
    ("returncode", "expected"),
    [
        (0, (0, None)),
        (1, (1, None)),
        (255, (255, None)),
        (-signal.SIGKILL, (137, "SIGKILL")),
        (-signal.SIGSEGV, (139, "SIGSEGV")),
        (-40, (168, "signal 40")),
    ],
)
def test_a_return_code_becomes_what_a_shell_would_say(
    returncode: int, expected: tuple[int, str | None]
) -> None:
    """128 + the signal's number, with its name where it has one."""
    assert shell_code(returncode) == expected
