"""What a guard shows to Prometheus, and that nobody who asks can hurt it."""

from __future__ import annotations

import argparse
import builtins
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from scraped import free_port

from helpers import CHANGE, Ears, wait_until
from holdfast.guard.eventlog import EventLog
from holdfast.guard.exposing import (
    ExposeSettings,
    Exposing,
    add_metrics_flags,
    make_exposing,
    name_metrics_flags,
)
from holdfast.guard.home import RunSettings
from holdfast.guard.outside import add_outside_flags
from holdfast.metrics.seen import name_run
from holdfast.telemetry import Summary
from holdfast.values import AttemptStarted, JobSlowed, RunStarted, StepSeen

KEY = "00112233445566778899aabbccddeeff"
SUMMARY = Summary(
    at="2026-11-17T12:00:00+00:00",
    node=0,
    attempt=0,
    steps={"0": 7, "1": 7},
    duration_s={"0": 0.5, "1": 0.5},
    own_s={"0": 0.1, "1": 0.4},
    lost=3,
)


@pytest.fixture
def run_dir(tmp_path: Path, ears: Ears) -> Path:
    """A run directory with the log of a run that has just begun."""
    folder = tmp_path / "my-run"
    folder.mkdir()
    log = EventLog(folder, node=0, host="gpu-1", say=ears.say)
    for event in (
        RunStarted(run_id="x", argv=[], pid=1),
        AttemptStarted(world_size=2, nodes=1, ranks=[0, 1], pids=[2, 3]),
        StepSeen(rank=0, step=0),
        StepSeen(rank=1, step=0),
    ):
        log.append(event)
    return folder


@pytest.fixture
def exposing(run_dir: Path, ears: Ears) -> Iterator[Exposing]:
    """A guard of node 0 that can be asked."""
    exposing = Exposing(ExposeSettings(port=free_port()), run_dir, node=0, key=KEY, say=ears.say)
    exposing.start()
    wait_until(lambda: exposing.port is not None, "the port")
    yield exposing
    exposing.close()


def _ask(port: int | None, path: str = "/metrics", **headers: str) -> tuple[int, str, str]:
    assert port is not None
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type") or "", answer.read().decode()
    finally:
        connection.close()


def _values(text: str) -> dict[str, float]:
    families = text_string_to_metric_families(text)
    order = ("run", "rank", "host", "state", "kind", "level")
    return {
        " ".join(
            [sample.name, *(sample.labels[each] for each in order if each in sample.labels)]
        ): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_guard_shows_its_run(exposing: Exposing, run_dir: Path, ears: Ears) -> None:
    """From its log and from what its workers did in the last second, in both formats."""
    run = name_run("my-run", KEY)
    exposing.take(SUMMARY)
    wait_until(lambda: f"holdfast_step_seconds {run}" in _values(_ask(exposing.port)[2]), "a step time")
    values = _values(_ask(exposing.port)[2])
    assert values[f"holdfast_run_state {run} training"] == 1
    assert values[f"holdfast_step {run}"] == 7
    assert values[f"holdfast_worker_own_ratio {run} 1 gpu-1"] == pytest.approx(1.6)
    assert values[f"holdfast_guard_lost_records_total {run} gpu-1"] == 3
    EventLog(run_dir, node=0, host="gpu-1", say=ears.say).append(JobSlowed(change=CHANGE))
    slow = f"holdfast_run_state {run} slow"
    wait_until(lambda: _values(_ask(exposing.port)[2])[slow] == 1, "the slow job")
    _, content_type, text = _ask(exposing.port, Accept="application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_only_this_machine_can_ask(exposing: Exposing) -> None:
    """Unless somebody says otherwise."""
    with Path("/proc/net/tcp").open() as table:
        listening = [line.split()[1] for line in table if line.split()[3] == "0A"]
    wanted = f":{exposing.port:04X}"
    assert [address for address in listening if address.endswith(wanted)] == [f"0100007F{wanted}"]


def test_who_asks_badly_hurts_nobody(
    exposing: Exposing, ears: Ears, capfd: pytest.CaptureFixture[str]
) -> None:
    """Half a request, nonsense, forty who hang on: the next one is answered, and nothing is said."""
    assert exposing.port is not None
    idle = [socket.create_connection(("127.0.0.1", exposing.port)) for _ in range(40)]
    try:
        for data in (b"GET", b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"X" * 100_000):
            with socket.create_connection(("127.0.0.1", exposing.port)) as rude:
                rude.sendall(data)
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        assert _ask(exposing.port)[0] == 200
        assert _ask(exposing.port, "/anything?name[]=nothing")[0] == 200
    finally:
        for each in idle:
            each.close()
    assert ears.lines() == []
    assert capfd.readouterr() == ("", "")


def test_another_node_shows_only_its_ranks(run_dir: Path, ears: Ears) -> None:
    """What the run is like is not for it to say."""
    log = EventLog(run_dir, node=1, host="gpu-2", say=ears.say)
    log.append(AttemptStarted(world_size=4, nodes=2, ranks=[2, 3], pids=[4, 5]))
    exposing = Exposing(ExposeSettings(port=free_port()), run_dir, node=1, key=KEY, say=ears.say)
    exposing.start()
    exposing.take(
        msgspec.structs.replace(SUMMARY, duration_s={"2": 1.0, "3": 1.0}, own_s={"2": 0.5, "3": 1.0})
    )
    wait_until(lambda: exposing.port is not None, "the port")
    name = f"holdfast_worker_own_ratio {name_run('my-run', KEY)} 3 gpu-2"
    wait_until(lambda: name in _values(_ask(exposing.port)[2]), "the slow rank")
    names = {each.partition(" ")[0] for each in _values(_ask(exposing.port)[2])}
    exposing.close()
    assert "holdfast_run_state" not in names
    assert "holdfast_guard_lost_records_total" in names


def test_a_text_file_is_written_whole_and_taken_away(run_dir: Path, tmp_path: Path, ears: Ears) -> None:
    """node_exporter reads it whenever it likes."""
    file = tmp_path / "holdfast.prom"
    exposing = Exposing(ExposeSettings(file=str(file)), run_dir, node=0, key=KEY, say=ears.say)
    exposing.take(SUMMARY)
    exposing.start()
    wait_until(file.exists, "the file")
    assert f"holdfast_step {name_run('my-run', KEY)}" in _values(file.read_text())
    assert exposing.port is None
    exposing.close()
    assert list(tmp_path.iterdir()) == [run_dir]


def test_what_cannot_be_shown_is_said_once(run_dir: Path, tmp_path: Path, ears: Ears) -> None:
    """A port that is taken, and a folder that is not there; the guard goes on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = tmp_path / "none" / "holdfast.prom"
        exposing = Exposing(ExposeSettings(port=port, file=str(file)), run_dir, node=0, key=KEY, say=ears.say)
        exposing.start()
        wait_until(lambda: len(ears.lines()) == 2, "two lines")
        exposing.take(SUMMARY)
        exposing.close()
    assert sorted(ears.lines()) == [
        f"holdfast: cannot write {file}: No such file or directory; training goes on",
        f"holdfast: no metrics at 127.0.0.1:{port}: Address already in use; training goes on",
    ]


def test_a_log_that_was_replaced_is_read_from_its_beginning(exposing: Exposing, run_dir: Path) -> None:
    """What the old one said is forgotten; broken lines are left out."""
    run = name_run("my-run", KEY)
    state = f"holdfast_run_state {run}"
    wait_until(lambda: _values(_ask(exposing.port)[2]).get(f"{state} training") == 1, "training")
    fresh = run_dir / "fresh"
    fresh.write_bytes(b'{"schema":1}\nnot json\n' + b"[" * 100_000 + b"\n")
    fresh.rename(run_dir / "events.jsonl")
    wait_until(lambda: _values(_ask(exposing.port)[2])[f"{state} starting"] == 1, "the new log")


def _parse(*argv: str, is_attached: bool = False) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_outside_flags(parser)
    add_metrics_flags(parser)
    args = parser.parse_args(argv)
    args.node, args.attached = 0, is_attached
    return args


def test_it_is_off_unless_somebody_wants_it(run_dir: Path, ears: Ears) -> None:
    """Variables count only where no launcher has read them."""
    env = {"HOLDFAST_METRICS_PORT": "9417", "HOLDFAST_METRICS_FILE": "x.prom"}
    assert make_exposing(_parse(), run_dir, ears.say, {}) is None
    assert make_exposing(_parse(), run_dir, ears.say, env) is None
    assert make_exposing(_parse(is_attached=True), run_dir, ears.say, env) is not None
    assert make_exposing(_parse("--metrics-file", "x.prom"), run_dir, ears.say, {}) is not None
    assert ears.lines() == []
    assert make_exposing(_parse(is_attached=True), run_dir, ears.say, {"HOLDFAST_METRICS_PORT": "x"}) is None
    assert make_exposing(_parse("--metrics-port", "70000"), run_dir, ears.say, {}) is None
    assert len(ears.lines()) == 2


def test_the_launcher_hands_on_what_it_was_told() -> None:
    """Its flags for the guard say the same as its settings."""
    for told in (
        RunSettings(),
        RunSettings(metrics_port=9417),
        RunSettings(metrics_port=9417, metrics_host="::1", metrics_file="/x/y.prom"),
    ):
        args = _parse(*name_metrics_flags(told.exposing()))
        assert (args.metrics_port, args.metrics_file) == (told.metrics_port, told.metrics_file)
        assert args.metrics_host == told.metrics_host


def test_without_the_library_training_goes_on(
    run_dir: Path, ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what to install."""
    real = builtins.__import__

    def fail(name: str, *rest: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", fail)
    for _ in range(2):
        assert make_exposing(_parse("--metrics-port", "9417"), run_dir, ears.say, {}) is None
    assert ears.lines() == [
        "holdfast: metrics are not shown: prometheus_client is missing: "
        "pip install 'holdfast[metrics]'; training goes on"
    ]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"metrics_port": 65536}, "metrics_port is 65536, expected 1 to 65535, or 0 for none"),
        ({"metrics_port": -1}, "metrics_port is -1"),
        ({"metrics_file": "x.txt"}, "metrics_file is 'x.txt', expected a name that ends in .prom"),
    ],
)
def test_settings_are_checked_before_anything_starts(settings: dict[str, Any], words: str) -> None:
    """With the value in the message."""
    with pytest.raises(ValueError, match=words):
        RunSettings(**settings)


@pytest.mark.processes
def test_a_real_guard_can_be_scraped(run_dir: Path, tmp_path: Path) -> None:
    """A process of its own, with real flags; its threads do not keep it from ending when it is told to."""
    rings = tmp_path / "rings"
    rings.mkdir()
    port = free_port()
    flags = ["--node", "0", "--parent", str(os.getpid()), "--run-key", KEY, "--metrics-port", str(port)]
    guard = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "holdfast.guard.watcher",
            "--run-dir",
            str(run_dir),
            "--rings",
            str(rings),
            *flags,
        ],
        stderr=subprocess.PIPE,
    )
    try:

        def is_there() -> bool:
            try:
                return "holdfast_run_state" in _ask(port)[2]
            except OSError:
                return False

        timer = threading.Event()
        for _ in range(600):
            if is_there() or guard.poll() is not None:
                break
            timer.wait(0.1)
        assert f'run="{name_run("my-run", KEY)}",state="training"}} 1.0' in _ask(port)[2]
        guard.send_signal(signal.SIGTERM)
        assert guard.wait(30) == 0
    finally:
        if guard.poll() is None:
            guard.kill()
            guard.wait()
        assert guard.stderr is not None
        guard.stderr.close()
