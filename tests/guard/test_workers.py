"""Workers: started, heard, ended with all that they left."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from desks import Desk

from helpers import PATIENCE_S, Ears, wait_until

pytestmark = [
    pytest.mark.processes,
    # Files of finished streams are closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

LEAVES = """
import subprocess
print(subprocess.Popen(["sleep", "60"], process_group={group}, stdout=subprocess.DEVNULL).pid, flush=True)
"""
RAISES = "raise ValueError('ü' * {length})\n"


@pytest.fixture
def desk(tmp_path: Path, ears: Ears) -> Iterator[Desk]:
    """A desk that is cleared afterwards."""
    desk = Desk(tmp_path, ears)
    yield desk
    desk.close()


def _boot(folder: Path, text: str) -> list[str]:
    script = folder / "train.py"
    script.write_text(text)
    return [sys.executable, "-P", "-m", "holdfast.job.boot", str(script)]


def test_each_end_is_described(desk: Desk) -> None:
    """Success is no death; a code is a code; a signal has its name and a shell's code."""
    workers = desk.start(["true"], ["sh", "-c", "exit 3"], ["sh", "-c", "kill -9 $$"])
    deaths = desk.end(workers)
    assert [(death.rank, death.local_rank, death.exit_code, death.signal) for death in deaths] == [
        (11, 1, 3, None),
        (12, 2, 137, "SIGKILL"),
    ]
    assert [death.pid for death in deaths] == [worker.pid for worker in workers.all[1:]]
    assert all(death.seen_s > 0 and (death.node, death.host) == (1, "a") for death in deaths)


def test_the_last_words_of_a_script_are_heard(desk: Desk) -> None:
    """Error and traceback come with the death, and go into the worker's own log."""
    workers = desk.start(_boot(desk.folder, "print('out')\nraise ValueError('broken')\n"))
    death = desk.end(workers)[0]
    assert (death.exit_code, death.error) == (1, "ValueError: broken")
    workers.keep_tracebacks({death.rank: death})
    log = (desk.folder / "rank_10.log").read_text()
    assert log.startswith("out\nTraceback (most recent call last):\n")
    assert log.endswith("ValueError: broken\n")


@pytest.mark.parametrize("length", [1, pytest.param(20_000)])
def test_an_error_of_any_length_is_heard(desk: Desk, length: int) -> None:
    """Letters outside ASCII are six times as long in the report."""
    death = desk.end(desk.start(_boot(desk.folder, RAISES.format(length=length))))[0]
    assert death.error is not None
    assert death.error.startswith("ValueError: ü")


def test_a_native_crash_is_heard_as_text(desk: Desk) -> None:
    """No error line, but the Python stack."""
    death = desk.end(desk.start(_boot(desk.folder, "import os\nos.abort()\n")))[0]
    assert (death.signal, death.error) == ("SIGABRT", None)
    assert death.traceback is not None
    assert death.traceback.startswith("Fatal Python error: Aborted")


def test_a_worker_that_the_job_survives_says_so(desk: Desk) -> None:
    """What it says later is heard as from any other."""
    says = "from holdfast.job.lastwords import say_survives\nassert say_survives()\n"
    workers = desk.start(_boot(desk.folder, f"{says}raise ValueError('broken')\n"), ["false"])
    death = desk.end(workers)[0]
    assert [worker.survives for worker in workers.all] == [True, False]
    assert (death.error, death.traceback is None) == ("ValueError: broken", False)


@pytest.mark.parametrize(
    ("end", "native"), [("os.kill(os.getpid(), 9)", None), ("os.abort()", "Fatal Python")]
)
def test_having_said_so_is_no_stack(desk: Desk, end: str, native: str | None) -> None:
    """Only what a crash in native code has written is shown as its stack."""
    says = "import os\nfrom holdfast.job.lastwords import say_survives\nsay_survives()\n"
    death = desk.end(desk.start(_boot(desk.folder, f"{says}{end}\n")))[0]
    assert (death.traceback or "")[:12] == (native or "")
    assert "survives" not in (death.traceback or "").partition("\n")[0]


def test_a_program_that_does_not_exist_ends_those_already_started(desk: Desk, tmp_path: Path) -> None:
    """The error comes out, and no worker stays."""
    mark = tmp_path / "pid"
    with pytest.raises(FileNotFoundError):
        desk.start(["sh", "-c", f"echo $$ > {mark}; sleep 60"], ["/no/such/program"])
    assert not mark.exists() or not psutil.pid_exists(int(mark.read_text() or "0"))


@pytest.mark.parametrize(
    "group",
    [
        "None",
        pytest.param(
            "0",
        ),
    ],
    ids=["in its group", "in a group of its own"],
)
def test_what_a_worker_leaves_in_its_session_is_ended(desk: Desk, group: str) -> None:
    """Helpers and data loaders do not outlive it."""
    text = LEAVES.format(group=group)
    workers = desk.start([sys.executable, "-c", text])
    wait_until(lambda: not workers.running(), "the worker's end")
    workers.stop(signal.SIGTERM, grace_s=0.0)
    helper = psutil.Process(int((desk.folder / "rank_10.log").read_text()))
    # A killed process is gone once its new parent has reaped it; one that nobody killed sleeps on.
    wait_until(lambda: not _is_alive(helper.pid) or helper.status() == psutil.STATUS_SLEEPING)
    is_alive = _is_alive(helper.pid)
    if is_alive:
        helper.kill()
    assert not is_alive


def test_a_worker_that_heeds_the_signal_ends_by_itself(desk: Desk) -> None:
    """It gets the time to clean up."""
    heed = f"trap 'echo > {desk.folder}/done; exit 0' TERM"
    script = f"{heed}; echo > {desk.folder}/ready; while :; do sleep 0.01; done"
    workers = desk.start(["sh", "-c", script])
    wait_until((desk.folder / "ready").exists, "the trap")
    workers.stop(signal.SIGTERM, grace_s=PATIENCE_S)
    assert (workers.all[0].exit_code, (desk.folder / "done").exists()) == (0, True)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_worker_that_ignores_the_signal_is_killed(desk: Desk, is_stopped: bool) -> None:
    """After the grace period, also when it was stopped; then all are reaped."""
    script = f"trap '' TERM; echo > {desk.folder}/ready; while :; do sleep 0.01; done"
    workers = desk.start(["sh", "-c", script], ["sleep", "60"])
    wait_until((desk.folder / "ready").exists, "the trap")
    if is_stopped:
        workers.all[0].signal(signal.SIGSTOP)
    workers.stop(signal.SIGTERM, grace_s=0.1)
    assert [worker.exit_code for worker in workers.all] == [-signal.SIGKILL, -signal.SIGTERM]
    assert workers.running() == []


def test_a_signal_to_a_worker_that_is_gone_is_no_error(desk: Desk) -> None:
    """Its process id may be anybody's by then; the group is not signalled after the reaping."""
    workers = desk.start(["true"])
    desk.end(workers)
    workers.stop(signal.SIGTERM, grace_s=0)
    assert workers.failed() == []


def test_the_environment_is_the_plans_and_two_words_of_ours(desk: Desk) -> None:
    """Nothing of the launcher's own environment slips in."""
    desk.end(desk.start(["env"]))
    names = {line.partition("=")[0] for line in (desk.folder / "rank_10.log").read_text().splitlines()}
    assert names - {"PWD", "SHLVL", "_"} == {
        "PATH",
        "HOLDFAST_RINGS",
        "HOLDFAST_LAUNCHER_PID",
        "HOLDFAST_REPORT_FD",
    }


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
