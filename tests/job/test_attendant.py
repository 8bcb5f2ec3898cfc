"""Attendant: a training process says where it is when a guard asks, whatever it is stuck in."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from helpers import PATIENCE_S, wait_until
from holdfast.diagnose.hangs import diagnose_hang
from holdfast.job.attendant import LOOK_EVERY_S, Attendant, answer_path, ask_path, watch_lines
from holdfast.job.files import replace_file
from holdfast.observe.flight import read_dumps
from holdfast.telemetry import Ask, Lines

SLEEPER = """
import sys, threading, time
from pathlib import Path
from holdfast.job.attendant import Attendant

folder = Path(sys.argv[1])
attendant = Attendant(folder, rank=3, thread=threading.get_ident())
attendant.start()
(folder / "ready").touch()

def rest():
    time.sleep(0.02)  # Here it is.

while folder.exists():
    rest()
while any(thread.name == "holdfast-attendant" for thread in threading.enumerate()):
    time.sleep(0.02)
print("errors", attendant.errors)
"""
"""Rests until its folder is gone, and says how many errors there were when its attendant has ended."""

STUCK = """
import os, sys, threading, time
from pathlib import Path
import torch, torch.distributed as dist
from holdfast.job.attendant import Attendant

rank, folder = int(os.environ["RANK"]), Path(sys.argv[1])
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
Attendant(folder, rank=rank, thread=threading.get_ident()).start()
(folder / f"ready_{rank}").touch()
if rank == 1:
    time.sleep(600)
dist.all_reduce(torch.ones(4))
"""
"""Rank 0 waits in a call for rank 1, which never makes it."""


def ask(folder: Path, *ranks: int, duration_s: float = 0.3, dumps: Path | None = None) -> Ask:
    """Lay a question into a folder."""
    question = Ask(
        id=secrets.token_hex(4),
        ranks=list(ranks),
        duration_s=duration_s,
        dumps=None if dumps is None else str(dumps),
    )
    replace_file(ask_path(folder), msgspec.json.encode(question))
    return question


def answer(folder: Path, question: Ask, rank: int) -> Lines:
    """Wait for a rank's answer."""
    path = answer_path(folder, question.id, rank)
    wait_until(path.exists, f"an answer of rank {rank}")
    return msgspec.json.decode(path.read_bytes(), type=Lines)


@contextmanager
def running(script: Path, folder: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone afterwards."""
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.processes
def test_a_process_says_where_it_is(tmp_path: Path) -> None:
    """The line that it sleeps in, as often as it is asked; its thread ends when the folder is removed."""
    folder = tmp_path / "rings"
    folder.mkdir()
    script = tmp_path / "sleeper.py"
    script.write_text(SLEEPER)
    old = ask(folder, 3)
    with running(script, folder) as process:
        wait_until((folder / "ready").exists, "the process")
        lines = answer(folder, ask(folder, 0, 3), 3)
        assert (lines.rank, lines.lines[0].file) == (3, str(script))
        assert (lines.lines[0].function, lines.lines[0].source) == ("rest", "time.sleep(0.02)  # Here it is.")
        assert lines.samples >= lines.lines[0].count > lines.samples / 2
        assert lines.stack[0].endswith(" rest")
        assert lines.stack[-1].endswith(" <module>")

        once = answer(folder, ask(folder, 3, duration_s=0.0), 3)
        assert once.samples == 1
        assert not answer_path(folder, old.id, 3).exists(), "what was asked before it began is none of its"

        shutil.rmtree(folder)
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert said == "errors 0\n"


@pytest.mark.processes
def test_a_rank_that_waits_in_a_call_answers(tmp_path: Path) -> None:
    """Its stack shows the call, the other's the line that holds it up; dumps of both tell the same."""
    folder, dumps = tmp_path / "rings", tmp_path / "dumps"
    folder.mkdir()
    dumps.mkdir()
    script = tmp_path / "stuck.py"
    script.write_text(STUCK)
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": "2"}
    settings = store | {"TORCH_FR_BUFFER_SIZE": "100", "OMP_NUM_THREADS": "1"}
    with running(script, folder, RANK="0", **settings), running(script, folder, RANK="1", **settings):
        for rank in range(2):
            wait_until((folder / f"ready_{rank}").exists, f"rank {rank}")
        nowhere = ask(folder, 0, 1, duration_s=0.0, dumps=tmp_path / "absent" / "dumps")
        for rank in range(2):  # A dump that cannot be written does not keep it from answering.
            assert answer(folder, nowhere, rank).stack
        question = ask(folder, 0, 1, duration_s=0.0, dumps=dumps)
        waiting, sleeping = (answer(folder, question, rank) for rank in range(2))
    assert any("distributed_c10d.py" in frame for frame in waiting.stack)
    assert waiting.lines[0].source == "dist.all_reduce(torch.ones(4))"
    assert sleeping.lines[0].source == "time.sleep(600)"
    assert sorted(path.name for path in dumps.iterdir()) == ["_dump_0", "_dump_1"]
    suspects = diagnose_hang(read_dumps([dumps])).suspects
    assert [each.ranks for each in suspects] == [[1]]


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_garbage_is_counted_and_passed_over(tmp_path: Path) -> None:
    """What is no question harms nothing; a question to others is not answered, the next to it is."""
    folder = tmp_path / "rings"
    folder.mkdir()
    attendant = Attendant(folder, rank=3, thread=threading.get_ident())
    attendant.start()
    garbage = [b"", b'{"id": 7}', b"\xff\xfe", b'{"id":"x","ranks":[3],"duration_s":"long"}']
    for number, each in enumerate(garbage, start=1):
        replace_file(ask_path(folder), each)
        wait_until(partial(_has_counted, attendant, number), "the error")
    time.sleep(3 * LOOK_EVERY_S)
    assert attendant.errors == len(garbage), "each of them is looked at once"
    others = ask(folder, 0, 1)
    answer(folder, ask(folder, 3, duration_s=0.0), 3)
    assert not answer_path(folder, others.id, 3).exists()
    shutil.rmtree(folder)
    wait_until(_has_no_attendant, "its end")


def _has_counted(attendant: Attendant, errors: int) -> bool:
    return attendant.errors == errors


def _has_no_attendant() -> bool:
    return not any(each.name == "holdfast-attendant" for each in threading.enumerate())


def test_a_thread_that_is_gone_has_no_lines() -> None:
    """It was asked for, and there is nothing to tell."""
    question = Ask(id="x", ranks=[0], duration_s=0.0)
    assert watch_lines(-1, rank=0, ask=question) == Lines(ask="x", rank=0, samples=0, lines=[], stack=[])


def test_only_the_innermost_line_of_the_users_own_code_is_told() -> None:
    """Frames of libraries are told as what it called, the innermost first."""
    is_over = threading.Event()
    thread = threading.Thread(target=lambda: is_over.wait(20))
    thread.start()
    assert thread.ident is not None
    lines = watch_lines(thread.ident, rank=0, ask=Ask(id="x", ranks=[0], duration_s=0.05))
    is_over.set()
    thread.join()
    told = lines.lines[0]
    assert (told.file, told.function) == (__file__, "<lambda>")
    assert told.inner[0].startswith("wait: ")


def test_a_folder_that_was_never_there_ends_the_wait(tmp_path: Path) -> None:
    """No thread stays behind for nothing."""
    Attendant(tmp_path / "absent", rank=0, thread=threading.get_ident()).start()
    wait_until(_has_no_attendant, "its end")
    assert not (tmp_path / "absent").exists()


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    """Half a file is not left for others to read."""
    target = tmp_path / "taken"
    (target / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="taken"):
        replace_file(target, b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
