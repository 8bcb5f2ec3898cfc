"""``holdfast run`` as a person would use it: real processes, real deaths."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from runs import TRAIN, Run, running, wait_until

from holdfast.values import (
    AttemptEnded,
    AttemptStarted,
    GuardDied,
    GuardStarted,
    LauncherDied,
    RunEnded,
    RunStarted,
    StepSeen,
)

pytestmark = pytest.mark.processes

TWO = ("--nproc-per-node", "2")


def test_a_healthy_job_ends_with_0_and_leaves_its_run_directory(tmp_path: Path) -> None:
    """Output is prefixed by rank and kept per rank, and the event log tells the story in order."""
    with running(tmp_path, *TWO, str(TRAIN)) as run:
        assert run.finish() == 0
    for rank in (0, 1):
        assert re.search(rf"^\[rank {rank}\] rank {rank} ends with loss", run.stdout, re.MULTILINE)
        assert f"rank {rank} ends" in (run.run_dir / f"logs/attempt_0/rank_{rank}.log").read_text()
    assert json.loads((run.run_dir / "run.json").read_text())["schema"] == 1
    content = run.events()
    assert (content.cut, content.broken) == (0, [])
    kinds = [type(r.event) for r in content.records if not isinstance(r.event, (GuardStarted, StepSeen))]
    assert kinds == [RunStarted, AttemptStarted, AttemptEnded, RunEnded]
    assert run.left_behind() == []
    rows = [json.loads(line) for line in (run.run_dir / "summaries.jsonl").read_text().splitlines()]
    assert rows[-1]["steps"] == {"0": 9, "1": 9}


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("raise", 1, "ValueError: the input is broken (exit code 1)"),
        ("destroy", 1, "ValueError: the input is broken (exit code 1)"),
        ("exit=3", 3, "exit code 3"),
        ("kill", 137, "SIGKILL (exit code 137); killed from outside"),
        ("segv", 139, "SIGSEGV (exit code 139); a crash in native code"),
    ],
)
def test_the_first_to_die_is_named_and_its_code_returned(
    tmp_path: Path, how: str, code: int, words: str
) -> None:
    """The last line names rank 1 and what ended it, never rank 0, which only lost its peer."""
    with running(tmp_path, *TWO, str(TRAIN), FAIL=f"1@5:{how}") as run:
        assert run.finish() == code
    last = run.stderr.splitlines()[-1]
    assert re.match(r"holdfast: rank 1 on host \S+ died first: ", last)
    assert words in last
    assert run.output.count("Traceback (most recent call last)") == (1 if "Value" in words else 0)
    if "Value" in words:  # As the script alone would show it: no frames of ours, no prefixes of torch's.
        assert "[rank1]:" not in run.output
        assert "boot.py" not in run.output
    assert run.left_behind() == []


def test_a_crash_in_native_code_shows_the_python_stack(tmp_path: Path) -> None:
    """A segmentation fault comes with the line of the script that caused it."""
    with running(tmp_path, *TWO, str(TRAIN), FAIL="1@5:segv") as run:
        run.finish()
    assert "in fail" in run.stderr
    assert "Segmentation fault" in run.stderr


def test_the_error_file_is_written_for_the_worker_and_for_our_own_caller(tmp_path: Path) -> None:
    """Both files have torchelastic's format."""
    own = tmp_path / "error.json"
    with running(tmp_path, *TWO, str(TRAIN), FAIL="1@5:raise", TORCHELASTIC_ERROR_FILE=str(own)) as run:
        run.finish()
    worker = json.loads((run.run_dir / "errors/attempt_0/rank_1.json").read_text())
    assert worker["message"]["message"] == "ValueError: the input is broken"
    assert "train.py" in worker["message"]["extraInfo"]["py_callstack"]
    assert "ValueError" in json.loads(own.read_text())["message"]["message"]


def test_a_restart_is_clean_and_said_once(tmp_path: Path) -> None:
    """After a kill all workers start again, with a fresh store, and the job ends well."""
    with running(tmp_path, *TWO, "--max-restarts", "2", str(TRAIN), FAIL="1@5:kill") as run:
        assert run.finish() == 0
    assert run.stderr.count("restarting all workers (1 of 2)") == 1
    events = [record.event for record in run.events().records]
    assert sum(isinstance(event, AttemptStarted) for event in events) == 2
    reasons = [event.reason for event in events if isinstance(event, AttemptEnded)]
    assert reasons == ["failed", "succeeded"]
    assert (run.run_dir / "logs/attempt_1/rank_0.log").exists()


def test_a_job_that_always_fails_shows_its_traceback_once(tmp_path: Path) -> None:
    """Restarts do not repeat the traceback; it comes at the end."""
    with running(tmp_path, *TWO, "--max-restarts", "1", str(TRAIN), FAIL="1@2:raise", ALWAYS="1") as run:
        assert run.finish() == 1
    assert run.output.count("Traceback (most recent call last)") == 1
    assert run.output.count("restarting all workers") == 1


def test_a_script_that_raises_at_import_shows_its_traceback_once(tmp_path: Path) -> None:
    """All ranks fail alike; one of them speaks."""
    script = tmp_path / "bad.py"
    script.write_text("import a_module_that_is_not_there\n")
    with running(tmp_path, *TWO, str(script)) as run:
        assert run.finish() == 1
    assert run.output.count("Traceback (most recent call last)") == 1
    assert "holdfast/job" not in run.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("deaf", ["", "1"])
def test_a_signal_to_the_launcher_alone_ends_everything(
    tmp_path: Path, number: signal.Signals, deaf: str
) -> None:
    """Workers that ignore the signal are killed; nothing is left within 10 seconds."""
    with running(tmp_path, *TWO, str(TRAIN), STEPS="100000", IGNORE_TERM=deaf, CHILD="1") as run:
        run.wait_for_steps()
        run.process.send_signal(number)
        assert run.finish(timeout_s=10) == 128 + number
        assert run.left_behind() == []
    assert run.stderr.splitlines()[-1] == f"holdfast: stopped by {number.name}"
    assert "Traceback" not in run.output
    assert isinstance(run.events().records[-1].event, RunEnded)


def test_a_second_signal_does_not_wait_for_the_grace_period(tmp_path: Path) -> None:
    """Workers that ignore the first one, with all the time in the world, are killed at once by the second."""
    flags = (*TWO, "--shutdown-timeout", "600", str(TRAIN))
    with running(tmp_path, *flags, STEPS="100000", IGNORE_TERM="1") as run:
        run.wait_for_steps()
        run.process.send_signal(signal.SIGTERM)
        time.sleep(1.0)  # Within half a second it would count as the same signal.
        run.process.send_signal(signal.SIGTERM)
        assert run.finish(timeout_s=10) == 143
        wait_until(lambda: run.left_behind() == [], 5.0)


def test_an_error_whose_process_does_not_end_is_shown(tmp_path: Path) -> None:
    """A thread that goes on keeps the process, but not its traceback."""
    script = tmp_path / "stuck.py"
    script.write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(9,)).start()\n1 / 0\n"
    )
    with running(tmp_path, str(script)) as run:
        assert run.finish() == 1
    assert "rank 0 has raised ZeroDivisionError: division by zero, but does not end" in run.stderr


def test_a_signal_while_waiting_for_other_nodes_ends_the_launcher(tmp_path: Path) -> None:
    """A launcher that sits in the rendezvous goes within 10 seconds as well."""
    arguments = ("--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port", "1")
    with running(tmp_path, *arguments, str(TRAIN)) as run:
        # There is no event to wait for: it has not met anybody yet.
        wait_until(lambda: _catches(run.process.pid, signal.SIGTERM), 60.0)
        time.sleep(2)
        run.process.send_signal(signal.SIGTERM)
        assert run.finish(timeout_s=11) == 143
        assert run.left_behind() == []


def _catches(pid: int, number: int) -> bool:
    """Say whether a process has a handler for a signal."""
    line = next(
        row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("SigCgt")
    )
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


def test_workers_die_with_a_killed_launcher(tmp_path: Path) -> None:
    """After kill -9 of the launcher no process is left: workers at once, their helpers by the guard."""
    with running(tmp_path, *TWO, str(TRAIN), STEPS="100000", CHILD="1") as run:
        run.wait_for_steps()
        workers = run.worker_pids()
        run.process.kill()
        run.process.wait()
        wait_until(lambda: not any(map(_is_alive, workers)), 1.0)
        wait_until(lambda: run.left_behind() == [], 10.0)
        assert isinstance(run.events().records[-1].event, LauncherDied)
        assert not Path(json.loads((run.run_dir / "run.json").read_text())["rings"]).exists()


def test_training_goes_on_without_its_guard_and_another_one_starts(tmp_path: Path) -> None:
    """Two guards are killed; it is said once, and the job ends well."""
    with running(tmp_path, *TWO, str(TRAIN), STEPS="150") as run:
        run.wait_for_steps()
        for count in (1, 2):
            before = run.guard_pid()
            os.kill(before, signal.SIGKILL)
            wait_until(lambda before=before: run.guard_pid() != before, 20)  # type: ignore[misc]
            assert sum(isinstance(r.event, GuardDied) for r in run.events().records) == count
        assert run.finish() == 0
    assert run.stderr.count("the guard ended (SIGKILL)") == 1


def test_a_run_directory_that_cannot_be_made_does_not_stop_training(tmp_path: Path) -> None:
    """Training goes on, and it is said once."""
    (tmp_path / "run").write_text("a file where the folder should be")
    with running(tmp_path, *TWO, str(TRAIN)) as run:
        assert run.finish() == 0
    assert run.stderr.count("training goes on") == 1
    assert run.stdout.count("ends with loss") == 2


def test_a_full_disk_does_not_stop_training(tmp_path: Path) -> None:
    """Logs and events are lost and that is said; the workers' prints still succeed."""
    if os.geteuid() != 0:
        assert not os.environ.get("CI"), "needs root to mount a small file system"
        pytest.skip("needs root to mount a small file system")
    disk = tmp_path / "run"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(disk)], check=True)
    try:
        script = tmp_path / "chatty.py"
        script.write_text("for number in range(2000): print('line', number, 'x' * 80)\nprint('the end')\n")
        with running(tmp_path, *TWO, str(script)) as run:
            assert run.finish() == 0
        assert run.stdout.count("the end") == 2
        assert 1 <= run.stderr.count("training goes on") <= 4
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_lines_of_many_ranks_stay_whole(tmp_path: Path) -> None:
    """Ranks that print in pieces at the same time do not cut each other's lines."""
    script = tmp_path / "pieces.py"
    script.write_text(
        "import os, sys\n"
        "rank = os.environ['RANK']\n"
        "for number in range(300):\n"
        "    for piece in ('begin ', rank, ' ', str(number), ' end\\n'):\n"
        "        sys.stdout.write(piece); sys.stdout.flush()\n"
    )
    with running(tmp_path, "--nproc-per-node", "3", str(script)) as run:
        assert run.finish() == 0
    lines = run.stdout.splitlines()
    expected = {f"[rank {rank}] begin {rank} {number} end" for rank in range(3) for number in range(300)}
    assert set(lines) == expected
    assert len(lines) == 900


def test_torchruns_output_flags_are_honoured(tmp_path: Path) -> None:
    """--redirects keeps output off the terminal, --local-ranks-filter shows some ranks only."""
    script = tmp_path / "hello.py"
    script.write_text("import os; print('hello', os.environ['RANK'], flush=True)\n")
    with running(tmp_path, *TWO, "--local-ranks-filter", "1", str(script)) as run:
        run.finish()
    assert run.stdout == "[rank 1] hello 1\n"
    with running(tmp_path, *TWO, "-r", "0:1", str(script)) as run:
        run.finish()
    assert run.stdout == "[rank 1] hello 1\n"
    assert "hello 0" in (run.run_dir / "logs/attempt_0/rank_0.log").read_text()


def test_the_script_sees_what_it_would_see_under_torchrun(tmp_path: Path) -> None:
    """Environment, arguments, path and __main__ are those that a script under torchrun has."""
    script = tmp_path / "inner" / "look.py"
    script.parent.mkdir()
    script.write_text(
        "import json, os, sys\n"
        "names = ('RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK '\n"
        "         'ROLE_NAME '\n"
        "         'ROLE_WORLD_SIZE TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS OMP_NUM_THREADS '\n"
        "         'TORCHELASTIC_USE_AGENT_STORE TORCH_NCCL_ASYNC_ERROR_HANDLING').split()\n"
        "seen = {name: os.environ.get(name) for name in names}\n"
        "print('SEEN' + json.dumps([seen, sys.argv, sys.path[0], __name__, __file__,\n"
        "      'torch' in sys.modules, os.environ.get('TORCH_CPP_LOG_LEVEL')]))\n"
    )
    arguments = ["--nproc-per-node", "2", "--max-restarts", "1", str(script), "--flag", "-x"]
    with running(tmp_path, *arguments) as run:
        run.finish()
    stock = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    # Two ranks under torchrun may write into one line.
    seen = re.compile(r"SEEN((?:(?!SEEN).)*)")
    assert sorted(seen.findall(run.stdout)) == sorted(seen.findall(stock.stdout))


def test_bad_command_lines_get_one_line_and_exit_code_2(tmp_path: Path) -> None:
    """Nothing is started, and the one line says what was expected."""
    cases = {
        ("nope.py",): "script nope.py does not exist",
        ("--nproc-per-node", "0", str(TRAIN)): "--nproc-per-node is 0, expected at least 1",
        ("--nnodes", "1:4", str(TRAIN)): "a range needs --rdzv-backend=c10d",
        ("--unknown-flag", str(TRAIN)): "unrecognized arguments",
        ("--master-port", "70000", str(TRAIN)): "expected 0 to 65535",
    }
    started = [(Run(tmp_path, *arguments), words) for arguments, words in cases.items()]
    for run, words in started:
        assert run.finish() == 2
        assert run.stdout == ""
        assert len(run.stderr.splitlines()) == 1
        assert words in run.stderr
    assert not (tmp_path / "run").exists()


def test_a_taken_port_is_said_in_one_line(tmp_path: Path) -> None:
    """Static and dynamic rendezvous both notice that somebody else listens there."""
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        dynamic = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}")
        runs = [Run(tmp_path, "--master-port", str(port), str(TRAIN)), Run(tmp_path, *dynamic, str(TRAIN))]
        for run in runs:
            assert run.finish() == 2
            assert run.stderr.startswith(f"holdfast: port {port} is taken")
            assert len(run.stderr.splitlines()) == 1


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
