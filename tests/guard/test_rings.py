"""The rings of a node: found as they come, and nothing lost uncounted."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.guard.rings import Rings, RingsFolder
from holdfast.job import place
from holdfast.job.place import find_place, rings_folder
from holdfast.job.ring import MAGIC, SLOT_WORDS, RingWriter, ring_path


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for ring folders that belongs to the test alone."""
    monkeypatch.setattr(place, "Path", lambda *parts: tmp_path if parts == ("/dev/shm",) else Path(*parts))
    return tmp_path / f"holdfast-{os.getuid()}"


def _write(folder: Path, rank: int, steps: range, *, attempt: int = 0, capacity: int = 8) -> RingWriter:
    ring = RingWriter(ring_path(folder, rank), rank=rank, attempt=attempt, capacity=capacity)
    for step in steps:
        ring.append(step, 0, 0)
    return ring


def _seen(rings: Rings) -> list[tuple[int, int, int]]:
    return [(step.attempt, step.rank, step.step) for step in rings.read()]


def test_rings_are_read_as_they_appear(tmp_path: Path) -> None:
    """Rank by rank, each record once."""
    rings = Rings(tmp_path)
    assert _seen(rings) == []
    first = _write(tmp_path, 1, range(2))
    assert _seen(rings) == [(0, 1, 0), (0, 1, 1)]
    _write(tmp_path, 0, range(1))
    first.append(2, 0, 0)
    assert _seen(rings) == [(0, 0, 0), (0, 1, 2)]
    assert (_seen(rings), rings.lost) == ([], 0)


def test_a_new_attempt_is_read_from_its_beginning(tmp_path: Path) -> None:
    """The ring that replaced the old one is found by its inode; losses of the old one stay counted."""
    rings = Rings(tmp_path)
    _write(tmp_path, 0, range(10), capacity=4)
    assert [step for _, _, step in _seen(rings)] == [6, 7, 8, 9]
    _write(tmp_path, 0, range(2), attempt=1)
    assert _seen(rings) == [(1, 0, 0), (1, 0, 1)]
    assert rings.lost == 6


def test_the_last_steps_of_a_replaced_ring_are_read_or_counted(tmp_path: Path) -> None:
    """Steps made between the last look and the restart do not vanish."""
    rings = Rings(tmp_path)
    old = _write(tmp_path, 0, range(1))
    rings.read()
    old.append(1, 0, 0)
    old.append(2, 0, 0)
    _write(tmp_path, 0, range(1), attempt=1)
    assert len(rings.read()) + rings.lost == 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 4096,
        struct.pack("<Q", MAGIC),
        struct.pack("<8Q", MAGIC, 4, SLOT_WORDS, 0, 1, 0, 4, 0),
    ],
    ids=["empty", "foreign", "cut in the header", "cut before the slots"],
)
def test_a_ring_that_cannot_be_read_is_passed_over(tmp_path: Path, content: bytes) -> None:
    """The others are read, and so is it once it is whole."""
    ring_path(tmp_path, 0).write_bytes(content)
    _write(tmp_path, 1, range(1))
    rings = Rings(tmp_path)
    assert _seen(rings) == [(0, 1, 0)]
    _write(tmp_path, 0, range(1))
    assert _seen(rings) == [(0, 0, 0)]


def test_losses_are_counted_once_when_the_next_ring_cannot_be_read(tmp_path: Path) -> None:
    """A ring of another version after ours does not multiply what was lost before."""
    rings = Rings(tmp_path)
    _write(tmp_path, 0, range(10), capacity=4)
    rings.read()
    other = tmp_path / "other"
    other.write_bytes(b"x" * 4096)
    other.rename(ring_path(tmp_path, 0))
    for _ in range(3):
        rings.read()
    assert rings.lost == 6


def _write_and_die(folder: Path, rank: int) -> None:
    code = (
        "import sys, pathlib; from holdfast.job.ring import RingWriter, ring_path; rank = int(sys.argv[2]); "
        "RingWriter(ring_path(pathlib.Path(sys.argv[1]), rank), rank=rank).append(0, 0, 0)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder), str(rank)], check=True)


def test_what_the_dead_have_left_is_removed_once_the_others_have_gone_on(tmp_path: Path) -> None:
    """Not before: who is dead may be why the others stand still. Who lives and is silent is kept."""
    now_s = 0.0
    rings = Rings(tmp_path, clock=lambda: now_s)
    _write_and_die(tmp_path, 0)
    (tmp_path / "links_0.page").write_bytes(b"x")
    going = _write(tmp_path, 1, range(1))
    _write(tmp_path, 2, range(1))
    rings.read()
    now_s = 1000.0
    rings.read()
    assert sorted(rings.pids) == [0, 1, 2], "nobody has gone on"
    going.append(1, 0, 0)
    rings.read()
    assert sorted(rings.pids) == sorted(rings.in_calls()) == [1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank_1.ring", "rank_2.ring"]
    _write_and_die(tmp_path, 0)
    assert [step.rank for step in rings.read()] == [0], "somebody else may have its number"


def test_a_folder_that_is_gone_has_no_steps(tmp_path: Path) -> None:
    """It was removed at the end of the run."""
    assert Rings(tmp_path / "gone").read() == []


def test_a_made_folder_is_new_and_private(root: Path) -> None:
    """Two launchers of one process get two; nobody else may look in."""
    first, second = RingsFolder().path, RingsFolder().path
    assert first != second
    assert first.parent == second.parent == root
    assert first.stat().st_mode & 0o777 == 0o700


def test_the_folder_above_is_private_too(root: Path) -> None:
    """Otherwise others could see which runs there are."""
    RingsFolder()
    assert root.stat().st_mode & 0o777 == 0o700


def test_folders_of_dead_launchers_are_removed_and_those_of_living_ones_kept(root: Path) -> None:
    """What a killed launcher left does not fill the memory for ever."""
    living = RingsFolder()
    dead = root / "launch-4194305-ab"
    dead.mkdir()
    for name in ("rank_0.ring", "owner.lock"):
        (dead / name).write_bytes(b"")
    made = RingsFolder()
    assert sorted(root.iterdir()) == sorted([living.path, made.path])


def test_the_rings_of_a_job_named_like_ours_are_kept(root: Path) -> None:
    """``torchrun --rdzv-id run-4194305`` with ``holdfast.watch()`` is another job, and alive."""
    other = rings_folder(find_place({"TORCHELASTIC_RUN_ID": "launch-4194305"}).key)
    RingsFolder()
    assert other.exists()
