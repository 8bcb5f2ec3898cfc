"""Faults from files and words, and the refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.faults import FAULT_KINDS, Fault
from holdfast.lab.faults import check_faults, parse_fault, read_faults

FILE = """
[[fault]]
kind = "slow_device"
target = 1
at_step = 20
for_steps = 20
severity = 2.5

[[fault]]
kind = "slow_link"
target = [0, 1]
via = "pacing"
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "faults.toml"
    path.write_text(text)
    return path


def test_file_gives_its_faults_in_order(tmp_path: Path) -> None:
    """A file is a list of faults, with the defaults of the value where it is silent."""
    assert read_faults(_write(tmp_path, FILE)) == [
        Fault(kind="slow_device", target=1, at_step=20, for_steps=20, severity=2.5),
        Fault(kind="slow_link", target=(0, 1), via="pacing"),
    ]


def test_words_give_a_fault() -> None:
    """A fault fits on a command line."""
    assert parse_fault("slow_device rank=1 at=20 for=20 severity=2") == Fault(
        kind="slow_device", target=1, at_step=20, for_steps=20, severity=2.0
    )


def test_words_give_a_link() -> None:
    """Two ranks with a dash are the ends of a link."""
    assert parse_fault("slow_link rank=0-1") == Fault(kind="slow_link", target=(0, 1))


BAD_FILES = [
    ("[[fault]\n", "not TOML", "line 1"),
    ('[[fault]]\nkind = "slow"\ntarget = 1', "fault 1", "kind is 'slow'", *FAULT_KINDS),
    ('[[fault]]\nkind = "kill"', "fault 1", "target is missing"),
    ("[[fault]]\ntarget = 1", "fault 1", "kind is missing"),
    ('[[fault]]\nkind = "kill"\ntarget = 1\nsteps = 3', "fault 1", "unknown field 'steps'", "for_steps"),
    (
        '[[fault]]\nkind = "kill"\ntarget = 1\n[[fault]]\nkind = "kill"\ntarget = "x"',
        "fault 2",
        "target is 'x'",
    ),
    ('[[fault]]\nkind = "kill"\ntarget = 1\nat_step = -1', "fault 1", "at_step is -1"),
    ('[[fault]]\nkind = "kill"\ntarget = 1\nat_step = 1.5', "fault 1", "at_step is 1.5", "int"),
    ('[[fault]]\nkind = "slow_link"\ntarget = 1', "fault 1", "expected two ranks"),
    ('[[fault]]\nkind = "cpu_quota"\ntarget = 1\nvia = "magic"', "via is 'magic'", "cgroup, sigstop"),
    (
        '[[fault]]\nkind = "busy_neighbour"\ntarget = 1\nseverity = 2.5',
        "severity",
        "2.5",
        "whole number from 2",
    ),
    ('[[fault]]\nkind = "busy_neighbour"\ntarget = 1\nseverity = 1', "severity", "whole number from 2 up"),
    ("[fault]\nkind = 1", "[[fault]]"),
    ("[[faults]]\nkind = 1", "unknown key 'faults'", "[[fault]]"),
]


@pytest.mark.parametrize("case", BAD_FILES, ids=lambda case: case[1])
def test_bad_file_is_refused_in_one_line(tmp_path: Path, case: tuple[str, ...]) -> None:
    """A refusal names the file, the fault, the value and what was expected, in one line."""
    text, *expected = case
    path = _write(tmp_path, text)
    with pytest.raises(InputError) as refusal:
        read_faults(path)
    message = str(refusal.value)
    assert "\n" not in message
    for part in [str(path), *expected]:
        assert part in message


BAD_WORDS = [
    ("", "kind is ''"),
    ("slow rank=1", "kind is 'slow'"),
    ("kill", "rank is missing"),
    ("kill rank=x", "rank is 'x'"),
    ("kill rank=1 at=soon", "at is 'soon'", "whole number"),
    ("kill rank=1 when=3", "'when=3'", "at="),
    ("slow_device rank=1 severity=half", "severity is 'half'", "a number"),
    ("slow_device rank=1 severity=0.5", "severity of slow_device is 0.5"),
    ("slow_device rank=0-1", "expected one rank"),
]


@pytest.mark.parametrize("case", BAD_WORDS, ids=lambda case: case[0] or "nothing")
def test_bad_words_are_refused_in_one_line(case: tuple[str, ...]) -> None:
    """A refusal repeats the words and says what was expected."""
    words, *expected = case
    with pytest.raises(InputError) as refusal:
        parse_fault(words)
    message = str(refusal.value)
    assert "\n" not in message
    for part in [repr(words), *expected]:
        assert part in message


def test_missing_file_is_refused(tmp_path: Path) -> None:
    """A file that is not there is bad input, not a crash."""
    with pytest.raises(InputError, match=r"none\.toml: cannot be read"):
        read_faults(tmp_path / "none.toml")


def test_target_beyond_the_job_is_refused() -> None:
    """A rank that the job does not have is named, with the ranks that it has."""
    faults = [Fault(kind="kill", target=0), Fault(kind="slow_link", target=(0, 4))]
    with pytest.raises(InputError, match=r"fault 2 \(slow_link\): target is rank 4, expected .* 0 to 3"):
        check_faults(faults, world_size=4)
    check_faults(faults, world_size=5)
