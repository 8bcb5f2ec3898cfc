"""Usage: what a process uses of its core, of memory and of the network, many times a second."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.guard.sockdiag import SocketBytes, namespaces, sockets_of
from holdfast.guard.usage import Connections, DeviceClocks, Producer, Series, Threads, UsageSampler, to_series

BUSY = "import sys\nprint('ready', flush=True)\nwhile True: pass"
IDLE = "import sys, time\nprint('ready', flush=True)\ntime.sleep(600)"
TOUCHING = "print('ready', flush=True)\nwhile True: bytearray(64 << 20)"


@contextmanager
def process(program: str) -> Iterator[int]:
    """Run a program until the end of the block; it has begun to do what it does."""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def sampled(*producers: Producer, length_s: float = 0.6) -> dict[int, dict[str, Series]]:
    sampler = UsageSampler(producers)
    sampler.start()
    time.sleep(length_s)
    return sampler.stop()


def mean(series: Series) -> float:
    return sum(series.per_s) / len(series.per_s)


def test_cpu_and_faults_of_processes() -> None:
    """Who computes uses more of a core than who sleeps; who touches new memory has faults."""
    with process(BUSY) as busy, process(IDLE) as idle, process(TOUCHING) as touching:
        found = sampled(Threads({0: busy, 1: idle, 2: touching}))
    assert mean(found[0]["cpu"]) > 0.1
    assert mean(found[1]["cpu"]) < 0.01
    assert mean(found[2]["faults"]) > 100 * max(1.0, mean(found[1]["faults"]))
    assert set(found[0]) == {"cpu", "communication", "faults"}


def test_who_is_gone_uses_nothing() -> None:
    """A process that has ended is left out, and the others are told."""
    with process(IDLE) as gone:
        pass
    with process(IDLE) as idle:
        found = sampled(Threads({0: gone, 1: idle}), Connections({0: gone, 1: idle}), length_s=0.2)
    assert 0 not in found or "cpu" not in found[0]
    assert "cpu" in found[1]


def test_bytes_through_connections() -> None:
    """All that was sent is seen at both ends, by the sockets' numbers."""
    counter = SocketBytes()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as near, listener.accept()[0] as far:
            if not counter.read():
                pytest.skip("this kernel does not tell of sockets")
            near.sendall(b"x" * 10_000)
            assert len(far.recv(10_000, socket.MSG_WAITALL)) == 10_000
            seen = counter.read()
            for end in (near, far):
                assert 10_000 <= seen[os.fstat(end.fileno()).st_ino] < 10_100
            mine = sockets_of([os.getpid()])[os.getpid()]
            assert {os.fstat(near.fileno()).st_ino, os.fstat(far.fileno()).st_ino} <= mine
    counter.close()
    assert counter.read() == {}


def test_namespaces_are_told_once() -> None:
    """Processes of one namespace share one, and ours has no name."""
    assert namespaces([os.getpid(), os.getppid(), 2**22 + 1]) == [None]


def test_a_namespace_that_cannot_be_entered_tells_nothing(tmp_path: Path) -> None:
    """No error comes of it."""
    (tmp_path / "net").touch()
    assert SocketBytes(str(tmp_path / "net")).read() == {}
    assert SocketBytes(str(tmp_path / "absent")).read() == {}


def test_clock_of_a_device(tmp_path: Path) -> None:
    """It is what the file says while it says it; nonsense is nothing."""
    (tmp_path / "device_0").write_text("0.5")
    (tmp_path / "device_1").write_text("fast")
    found = sampled(DeviceClocks(tmp_path, [0, 1, 2]), length_s=0.3)
    assert mean(found[0]["device"]) == pytest.approx(0.5, rel=0.15)
    assert set(found) == {0}


def test_series_of_totals() -> None:
    """Growth per second at the middle of two looks; a total that begins anew is left out."""
    looks = [
        (0, {(0, "cpu"): 1.0}),
        (1_000_000_000, {(0, "cpu"): 1.5, (1, "cpu"): 7.0}),
        (3_000_000_000, {(0, "cpu"): 0.1}),
        (4_000_000_000, {(0, "cpu"): 1.1}),
    ]
    found = to_series(looks)
    assert found[0]["cpu"] == Series(at_ns=[500_000_000, 3_500_000_000], per_s=[0.5, 1.0])
    assert found[1]["cpu"] == Series(at_ns=[], per_s=[])
