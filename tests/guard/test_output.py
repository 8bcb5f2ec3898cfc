"""The workers' output: raw in the files, whole lines on the terminal, and nobody is held up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers import PATIENCE_S, Ears, wait_until
from holdfast.guard.console import Console
from holdfast.guard.output import LogFile, Pump, Show
from holdfast.guard.say import Say

# Files of finished streams are closed by the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

BLOCKED = """
import subprocess, sys
from pathlib import Path
from holdfast.guard.console import Console
from holdfast.guard.console import Console
from holdfast.guard.output import Pump, Show
from holdfast.guard.say import Say
console = Console()
pump = Pump(console, Say())
chatty = "for n in range(40_000): print(n, 'x' * 100)"
worker = subprocess.Popen([sys.executable, "-c", chatty], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
pump.add_output(stdout=worker.stdout.fileno(), stderr=worker.stderr.fileno(),
                log=Path(sys.argv[1]), show=Show(prefix="[rank 0] "))
print(worker.wait(), file=sys.stderr, flush=True)
pump.drain(20)
print(Path(sys.argv[1]).stat().st_size, file=sys.stderr, flush=True)
import os; os._exit(0)
"""


class Worker:
    """The writing ends of a worker's two pipes."""

    def __init__(self, pump: Pump, log: Path, show: Show) -> None:
        out_read, self.out = os.pipe()
        err_read, self.err = os.pipe()
        pump.add_output(stdout=out_read, stderr=err_read, log=log, show=show)

    def end(self) -> None:
        """Close both, as the end of a process does."""
        os.close(self.out)
        os.close(self.err)


@pytest.fixture
def console() -> Iterator[Console]:
    """A console that is closed afterwards."""
    console = Console()
    yield console
    console.close(PATIENCE_S)


@pytest.fixture
def pump(console: Console, ears: Ears) -> Iterator[Pump]:
    """A pump that is closed afterwards."""
    pump = Pump(console, ears.say)
    yield pump
    pump.close()


def test_output_is_raw_in_the_file_and_prefixed_on_the_terminal(
    pump: Pump, console: Console, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Pieces become lines, streams stay apart, and an unfinished last line is shown too."""
    worker = Worker(pump, tmp_path / "logs" / "rank_0.log", Show(prefix="[rank 0] "))
    os.write(worker.out, b"one\ntw")
    os.write(worker.out, b"o\r\nlast")
    worker_text = b"one\ntwo\r\nlast"
    wait_until((tmp_path / "logs" / "rank_0.log").exists)
    worker.end()
    pump.drain(PATIENCE_S)
    console.close(PATIENCE_S)
    assert capfd.readouterr() == ("[rank 0] one\n[rank 0] two\n[rank 0] last\n", "")
    assert (tmp_path / "logs" / "rank_0.log").read_bytes() == worker_text


@pytest.mark.parametrize("shown", [(True, False), (False, True), (False, False)])
def test_hidden_streams_still_reach_the_file(
    pump: Pump,
    console: Console,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    shown: tuple[bool, bool],
) -> None:
    """--redirects keeps them from the terminal only."""
    worker = Worker(pump, tmp_path / "log", Show(prefix="> ", stdout=shown[0], stderr=shown[1]))
    os.write(worker.out, b"out\n")
    os.write(worker.err, b"err\n")
    worker.end()
    pump.drain(PATIENCE_S)
    console.close(PATIENCE_S)
    assert capfd.readouterr() == ("> out\n" * shown[0], "> err\n" * shown[1])
    assert sorted((tmp_path / "log").read_bytes().splitlines()) == [b"err", b"out"]


def test_lines_with_a_word_are_copied(pump: Pump, tmp_path: Path) -> None:
    """--duplicate-stdout-filters gets whole prefixed lines in a file of its own."""
    show = Show(prefix="> ", stdout=False, stderr=False, stdout_filters=("loss", "acc"))
    worker = Worker(pump, tmp_path / "log", show)
    os.write(worker.out, b"loss 1\nother\nacc 2\n")
    os.write(worker.err, b"loss on the wrong stream\n")
    worker.end()
    pump.drain(PATIENCE_S)
    assert (tmp_path / "filtered_stdout.log").read_bytes() == b"> loss 1\n> acc 2\n"
    assert not (tmp_path / "filtered_stderr.log").exists()


def test_drain_gives_up_on_a_pipe_that_a_grandchild_holds_open(pump: Pump, tmp_path: Path) -> None:
    """What was written is in the file; closing the pump shows the rest."""
    worker = Worker(pump, tmp_path / "log", Show(prefix=""))
    os.write(worker.out, b"half a line")
    wait_until((tmp_path / "log").exists)
    pump.drain(0.05)
    pump.close()
    worker.end()
    assert (tmp_path / "log").read_bytes() == b"half a line"


def test_a_log_that_cannot_be_written_is_said_once(
    pump: Pump, console: Console, ears: Ears, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The terminal still gets the lines."""
    (tmp_path / "file").write_text("")
    worker = Worker(pump, tmp_path / "file" / "log", Show(prefix=""))
    for number in range(3):
        os.write(worker.out, b"%d\n" % number)
    worker.end()
    pump.drain(PATIENCE_S)
    console.close(PATIENCE_S)
    assert capfd.readouterr().out == "0\n1\n2\n"
    path = tmp_path / "file" / "log"
    assert ears.lines() == [f"holdfast: cannot write {path}: File exists; training goes on"]


def test_the_end_of_a_process_is_seen(pump: Pump) -> None:
    """Its descriptor wakes the pump once, with a time."""
    seen: list[float] = []
    with subprocess.Popen(["sleep", "60"]) as process:
        pump.add_exit(os.pidfd_open(process.pid), seen.append)
        process.kill()
        wait_until(lambda: seen)
    pump.drain(PATIENCE_S)
    assert len(seen) == 1


def test_last_words_arrive_whole(pump: Pump) -> None:
    """However large, in order."""
    heard: list[bytes] = []
    read_fd, write_fd = os.pipe()
    pump.add_report(read_fd, heard.append, lambda: None)
    words = os.urandom(300_000)
    with os.fdopen(write_fd, "wb") as pipe:
        pipe.write(words)
    pump.drain(PATIENCE_S)
    assert b"".join(heard) == words


@pytest.mark.processes
def test_a_terminal_that_has_stopped_does_not_stop_a_worker(tmp_path: Path) -> None:
    """Nobody reads our output; the worker ends all the same, and its file is complete."""
    log = tmp_path / "log"
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED, str(log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert [process.stderr.readline().strip() for _ in range(2)] == ["0", str(log.stat().st_size)]
        process.wait()
    assert log.read_text() == "".join(f"{number} {'x' * 100}\n" for number in range(40_000))


def test_a_stopped_terminal_and_a_full_disk_together_do_not_stop_a_worker(
    console: Console, tmp_path: Path
) -> None:
    """Saying that a log cannot be written must not hold up the pipes either."""
    terminal_read, terminal = os.pipe()
    os.set_blocking(terminal, False)
    _fill(lambda: os.write(terminal, b"." * 4096))
    os.set_blocking(terminal, True)
    pump = Pump(console, Say(terminal, put=console.put))
    (tmp_path / "file").write_text("")
    worker = Worker(pump, tmp_path / "file" / "log", Show(prefix="", stdout=False))
    printing = threading.Thread(target=_print, args=(worker.out,))
    printing.start()
    printing.join(0.5)
    is_held_up = printing.is_alive()
    _open_up(terminal_read)
    printing.join()
    worker.end()
    pump.drain(PATIENCE_S)
    pump.close()
    assert not is_held_up


def _print(fd: int) -> None:
    for _ in range(100):
        os.write(fd, b"x" * 4095 + b"\n")


def _fill(write: Callable[[], int]) -> None:
    try:
        while True:
            write()
    except BlockingIOError:
        return


def _open_up(fd: int) -> None:
    os.set_blocking(fd, False)
    _fill(lambda: len(os.read(fd, 1 << 20)))


def test_a_terminal_that_does_not_block_loses_nothing_uncounted(console: Console) -> None:
    """Some parents leave the descriptor non-blocking; lines wait then, or are counted as dropped."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    for number in range(100):
        console.put(write_fd, b"%03d " % number + b"x" * 4095 + b"\n")
    heard = b""
    while heard.count(b"\n") + console.dropped < 100:
        heard += os.read(read_fd, 1 << 20)
    os.close(read_fd)
    os.close(write_fd)
    assert heard.count(b"\n") + console.dropped == 100


def test_a_reader_that_is_gone_is_no_error(console: Console) -> None:
    """``holdfast run … | head`` ends the output, not the run."""
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    console.put(write_fd, b"lost\n")
    console.close(PATIENCE_S)
    os.close(write_fd)
    assert console.dropped == 0


def test_what_does_not_fit_into_the_queue_is_counted() -> None:
    """The terminal has stopped, the queue is full: the rest is dropped and the number is known."""
    read_fd, write_fd = os.pipe()
    console = Console()
    for _ in range(300):
        console.put(write_fd, b"x" * 100_000)
    os.set_blocking(read_fd, False)
    kept = 300 - console.dropped
    assert 0 < console.dropped < 300
    heard = b""

    def hear() -> bool:
        nonlocal heard
        try:
            heard += os.read(read_fd, 1 << 20)
        except BlockingIOError:
            return bool(len(heard) == kept * 100_000)
        return False

    wait_until(hear, "all that was kept")
    console.close(PATIENCE_S)
    os.close(read_fd)
    os.close(write_fd)


def test_a_file_that_can_be_written_again_is(small_disk: Path, ears: Ears) -> None:
    """A full disk is said once; room made later is used."""
    file = LogFile(small_disk / "log", ears.say)
    for _ in range(5):
        file.write(b"x" * 4096)
    assert [line.partition(": No")[2] for line in ears.lines()] == [" space left on device; training goes on"]
    with (small_disk / "log").open("r+b") as log:
        log.truncate(0)
    file.write(b"after")
    assert (small_disk / "log").read_bytes().endswith(b"after")
