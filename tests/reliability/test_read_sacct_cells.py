"""What sacct -P writes: states, times, numbers and GPUs in all their spellings."""

from __future__ import annotations

import pytest
from readersamples import at, cells, parse

HEADER = "JobID|State|Start|End"


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("CANCELLED by 123", "CANCELLED"),
        ("CANCELLED+", "CANCELLED"),
        ("OUT_OF_ME+", "OUT_OF_MEMORY"),
        ("NF", "NODE_FAIL"),
        ("COMPLETING", "RUNNING"),
        ("REQUEUE_HOLD", "PENDING"),
        (" failed ", "FAILED"),
        ("Unknown", None),
        ("", None),
    ],
)
def test_states_are_read_in_all_their_spellings(said: str, state: str | None) -> None:
    """A state that is not told is null."""
    assert cells(parse(f"JobID|State\n1|{said}\n"), "state") == [(state,)]


def test_a_state_that_nobody_knows_breaks_its_row() -> None:
    """It is not taken for another one."""
    reading = parse("JobID|State\n1|EXPLODED\n2|COMP+\n3|X+\n")
    assert [one.why for one in reading.told] == [
        "state is 'EXPLODED', expected one of Slurm's",
        "state is 'X+', expected one of Slurm's",
    ]


@pytest.mark.parametrize(
    ("said", "start"),
    [
        ("2024-03-10T12:00:00", "2024-03-10T11:00:00"),
        ("2024-07-10 12:00:00", "2024-07-10T10:00:00"),
        ("2024-07-10T12:00:00+05:00", "2024-07-10T07:00:00"),
        ("2024-07-10 12:00:00+00:00", "2024-07-10T12:00:00"),
        ("2024-07-10T12:00:00Z", "2024-07-10T12:00:00"),
        ("2024-07-10T12:00:00.500", "2024-07-10T10:00:00.5"),
        ("2024-07-10", "2024-07-09T22:00:00"),
        ("1720612800", "2024-07-10T12:00:00"),
        ("1720612800.25", "2024-07-10T12:00:00.25"),
        ("2024-10-27T02:30:00", "2024-10-27T00:30:00"),
    ],
)
def test_times_are_of_the_clusters_zone_unless_they_say_otherwise(said: str, start: str) -> None:
    """Summer time is known; of the hour that comes twice the first is meant."""
    reading = parse(f"JobID|Start\n1|{said}\n", timezone="Europe/Berlin")
    assert cells(reading, "start") == [(at(start),)]


@pytest.mark.parametrize("said", ["Unknown", "None", "", "N/A", " ", "0", "NONE"])
def test_times_that_are_not_known_are_null(said: str) -> None:
    """They break nothing."""
    assert cells(parse(f"{HEADER}\n1|RUNNING|2024-01-01T00:00:00|{said}\n"), "end") == [(None,)]


@pytest.mark.parametrize(
    "said", ["yesterday", "2024-13-01T00:00:00", "2024-03-31T02:30:00", "-5", "1e30", "inf"]
)
def test_times_that_never_were_break_their_row(said: str) -> None:
    """An hour that summer time leaves out is one of them."""
    reading = parse(f"JobID|Start\n1|{said}\n", timezone="Europe/Berlin")
    assert [one.why for one in reading.told] == [f"start is {said!r}, expected a time that the time zone has"]


def test_an_end_before_the_start_breaks_the_row() -> None:
    """It would count negative time."""
    reading = parse(f"{HEADER}\n1|FAILED|2024-01-02T00:00:00|2024-01-01T00:00:00\n")
    assert reading.broken == 1
    assert "is before start" in reading.told[0].why


@pytest.mark.parametrize(
    ("elapsed", "end"),
    [
        ("1-02:03:04", "2024-01-02T02:03:04"),
        ("02:03:04", "2024-01-01T02:03:04"),
        ("03:04", "2024-01-01T00:03:04"),
        ("90", "2024-01-01T00:01:30"),
    ],
)
def test_an_end_that_is_missing_follows_from_how_long_it_ran(elapsed: str, end: str) -> None:
    """Only for attempts that are over: one that runs has no end."""
    text = "JobID|State|Start|Elapsed\n1|FAILED|2024-01-01T00:00:00|{0}\n2|RUNNING|2024-01-01T00:00:00|{0}\n"
    assert cells(parse(text.format(elapsed)), "end") == [(at(end),), (None,)]


def test_a_job_that_never_ran_has_no_start() -> None:
    """Old versions of Slurm write when it was cancelled as its start, and no node."""
    text = f"{HEADER}|NodeList\n1|CANCELLED|2024-01-01T00:00:00|2024-01-01T00:00:00|None assigned\n"
    assert cells(parse(text), "start", "end", "node_list") == [(None, at("2024-01-01T00:00:00"), None)]


@pytest.mark.parametrize(
    ("header", "cell", "gpus"),
    [
        ("AllocTRES", "billing=8,cpu=8,gres/gpu=16,node=2", 16),
        ("AllocTRES", "cpu=8,gres/gpu:a100=8,gres/gpu:h100=4", 12),
        ("AllocTRES", "cpu=8,gres/gpu:a100=8,gres/gpu=8", 8),
        ("AllocTRES", "cpu=8", None),
        ("ReqTRES", "gres/gpu=4", 4),
        ("AllocGRES", "gpu:8", 8),
        ("AllocGRES", "gpu:a100:4(IDX:0-3)", 4),
        ("ReqGRES", "PER_NODE:gpu:8", 16),
        ("AllocTRES", "", None),
        ("AllocTRES", "gres/gpu=99999999999999999999", None),
    ],
)
def test_gpus_are_counted_in_all_ways_to_tell_them(header: str, cell: str, gpus: int | None) -> None:
    """Where nothing is told the number is not known."""
    assert cells(parse(f"JobID|NNodes|{header}\n1|2|{cell}\n"), "gpus") == [(gpus,)]


def test_no_gpus_are_none_only_where_gpus_are_counted() -> None:
    """A cluster that does not account for GPUs says nothing about them."""
    text = "JobID|AllocTRES|ReqTRES\n1|gres/gpu=8|\n2|cpu=4|cpu=4\n3||gres/gpu=2\n4||\n"
    assert cells(parse(text), "gpus") == [(8,), (0,), (2,), (None,)]


def test_numbers_that_were_rounded_break_their_row() -> None:
    """The message says how to get them in full."""
    reading = parse("JobID|NNodes\n1|2K\n2|0\n3|512\n")
    assert cells(reading, "nodes") == [(0,), (512,)]
    assert "--noconvert" in reading.told[0].why


def test_all_other_columns_are_filled() -> None:
    """Nodes that were given come before nodes that were asked for."""
    text = (
        "JobID|JobName|User|Account|Partition|QOS|Priority|Submit|Eligible|AllocNodes|NNodes|NodeList|ExcNodes\n"
        "1|None|ann|lab|gpu|high|77|2024-01-01T00:00:00|2024-01-01T00:00:01|0|4|gpu[1-4]|gpu9\n"
    )
    names = ("name", "user", "account", "partition", "qos", "priority", "nodes", "node_list", "exclude")
    assert cells(parse(text), *names) == [("None", "ann", "lab", "gpu", "high", 77, 4, "gpu[1-4]", "gpu9")]
    assert cells(parse(text), "submit", "eligible") == [
        (at("2024-01-01T00:00:00"), at("2024-01-01T00:00:01"))
    ]
