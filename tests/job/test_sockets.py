"""The sockets of a process: connections are found with both ends, and counted as the kernel does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from helpers import wait_until
from holdfast.job.sockets import (
    Connection,
    Counters,
    SocketScanner,
    as_counters,
    connections,
    delayed_acks,
    network_name,
)

NETWORK = "from holdfast.job.sockets import network_name; print(network_name(), end='')"


class Pair:
    """A connection, both ends in this process."""

    def __init__(self, host: str, *, family: int = socket.AF_INET, target: str | None = None) -> None:
        is_dual = family == socket.AF_INET6 and host == "::"
        with socket.create_server((host, 0), family=family, dualstack_ipv6=is_dual) as server:
            self.client = socket.create_connection((target or host, server.getsockname()[1]))
            self.server, _ = server.accept()

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A connection over IPv4."""
    pair = Pair("127.0.0.1")
    yield pair
    pair.close()


def _of(fd: int, scanner: SocketScanner | None = None) -> Counters | None:
    found = (scanner or SocketScanner()).scan()
    return next((each.counters for each in found if each.connection.fd == fd), None)


def _names(fds: list[int]) -> list[Connection]:
    return [each for each in connections() if each.fd in fds]


@pytest.mark.parametrize(
    ("host", "family", "target", "shown"),
    [
        ("127.0.0.1", socket.AF_INET, None, "127.0.0.1"),
        ("::1", socket.AF_INET6, None, "[::1]"),
        pytest.param("::", socket.AF_INET6, "127.0.0.1", "127.0.0.1", id="mapped"),
    ],
)
def test_both_ends_of_a_connection_name_each_other(
    host: str, family: int, target: str | None, shown: str
) -> None:
    """An end's peer is written as the other end writes itself, also where only one of them speaks IPv6."""
    pair = Pair(host, family=family, target=target)
    fds = [pair.client.fileno(), pair.server.fileno()]
    ports = [pair.client.getsockname()[1], pair.server.getsockname()[1]]
    ends = [f"{shown}:{port}" for port in ports]
    assert _names(fds) == [Connection(fds[0], *ends), Connection(fds[1], *ends[::-1])]
    pair.close()


def test_only_established_tcp_connections_are_told(pair: Pair) -> None:
    """A listener, a datagram socket, a local one, a file and a connection that is being closed are not."""
    with ExitStack() as stack:
        others = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))),
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
            *map(stack.enter_context, socket.socketpair()),
        ]
        others[1].connect(("127.0.0.1", 9))
        before = _names([pair.client.fileno(), pair.server.fileno()])
        assert len(before) == 2
        assert _names([each.fileno() for each in others]) == []
    pair.client.close()
    scanner = SocketScanner()
    wait_until(lambda: _of(pair.server.fileno(), scanner) is None, "the end of the connection")


def test_the_kernel_counts_what_was_sent_and_received(pair: Pair) -> None:
    """Bytes are exact at both ends; a connection that moved something was busy and took segments for it."""
    scanner = SocketScanner()
    size = 300_000
    received = 0
    pair.client.sendall(b"x" * size)
    while received < size:
        received += len(pair.server.recv(1 << 20))
    # The kernel counts the first acknowledgement, that of the connection itself, as a byte.
    wait_until(lambda: (_of(pair.client.fileno(), scanner) or Counters(*[0] * 13)).bytes_acked == size + 1)
    sender, receiver = _of(pair.client.fileno(), scanner), _of(pair.server.fileno(), scanner)
    assert sender is not None
    assert receiver is not None
    assert (receiver.bytes_received, receiver.bytes_acked, sender.bytes_received) == (size, 0, 0)
    assert sender.segments_sent is not None
    assert sender.mss_bytes is not None
    assert size / sender.mss_bytes <= sender.segments_sent < size
    assert sender.notsent_bytes == 0
    assert sender.rtt_us is not None
    assert sender.min_rtt_us is not None
    assert 0 < sender.min_rtt_us < 1e7
    assert 0 < sender.rtt_us < 1e7


def test_time_with_data_that_nobody_takes_is_busy_and_put_down_to_the_receiver(pair: Pair) -> None:
    """A sender whose receiver has no room left is busy, and limited by the window."""
    scanner = SocketScanner()
    pair.client.setblocking(False)
    try:
        while True:
            pair.client.send(b"x" * (1 << 16))
    except BlockingIOError:
        pass

    def is_limited() -> bool:
        counters = _of(pair.client.fileno(), scanner)
        assert counters is not None
        return (counters.rwnd_limited_us or 0) > 50_000

    wait_until(is_limited, "the window's limit")
    counters = _of(pair.client.fileno(), scanner)
    assert counters is not None
    assert counters.notsent_bytes is not None
    assert counters.notsent_bytes > 0
    assert counters.busy_us is not None
    assert counters.rwnd_limited_us is not None
    assert counters.busy_us >= counters.rwnd_limited_us


def test_a_number_that_was_given_to_another_connection_is_noticed(pair: Pair) -> None:
    """A scanner that has seen the old connection tells the ends of the new one."""
    scanner = SocketScanner()
    fd = pair.client.fileno()
    assert fd in {each.connection.fd for each in scanner.scan()}
    other = Pair("127.0.0.1")
    os.dup2(other.client.fileno(), fd)
    found = next(each.connection for each in scanner.scan() if each.connection.fd == fd)
    assert found.local == "{}:{}".format(*other.client.getsockname())
    other.close()


def test_the_number_of_a_file_that_was_given_to_a_connection_is_noticed_soon(pair: Pair) -> None:
    """A scanner does not look at files every time, but within sixteen scans."""
    scanner = SocketScanner()
    fd = os.open(os.devnull, os.O_RDONLY)
    assert _of(fd, scanner) is None
    os.dup2(pair.client.fileno(), fd)
    assert any(_of(fd, scanner) is not None for _ in range(16))
    os.close(fd)


def test_a_socket_is_seen_from_the_moment_it_is_connected(pair: Pair) -> None:
    """A scanner that saw it before, unconnected, asks again."""
    scanner = SocketScanner()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as late:
        assert _of(late.fileno(), scanner) is None
        late.connect(server.getsockname())
        assert _of(late.fileno(), scanner) is not None


def test_a_scan_opens_and_closes_nothing(pair: Pair) -> None:
    """The descriptors are the same after it, and the connections still work."""
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names only.
    scanner = SocketScanner()
    scanner.scan()
    scanner.scan()
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    pair.client.sendall(b"hello")
    assert pair.server.recv(5) == b"hello"


@pytest.mark.parametrize(("length", "known"), [(220, 13), (219, 12), (192, 12), (168, 9), (104, 3), (8, 0)])
def test_an_older_kernel_leaves_unknown_what_it_does_not_tell(length: int, known: int) -> None:
    """Counters that lie beyond what the kernel filled in are None, even in part."""
    counters = as_counters(tuple(range(1, 14)), length)
    assert list(counters) == [*range(1, known + 1), *[None] * (13 - known)]


def test_delayed_acknowledgements_are_those_of_the_kernel() -> None:
    """The number lies between those that the table shows before and after."""

    def shown() -> int:
        lines = Path("/proc/net/netstat").read_text().splitlines()
        names, values = (line.split() for line in lines if line.startswith("TcpExt"))
        return int(dict(zip(names, values, strict=True))["DelayedACKs"])

    before, found, after = shown(), delayed_acks(), shown()
    assert found is not None
    assert before <= found <= after


@pytest.mark.processes
def test_processes_of_one_network_call_it_the_same() -> None:
    """Another process has the same name for it."""
    done = subprocess.run([sys.executable, "-c", NETWORK], capture_output=True, text=True, check=True)
    assert done.stdout == network_name()


@pytest.mark.processes
@pytest.mark.root
def test_another_namespace_of_the_same_machine_has_another_name() -> None:
    """Its loopback addresses are other ones."""
    if os.geteuid() != 0:
        assert os.environ.get("CI") != "true", "needs root to make a network namespace"
        pytest.skip("needs root to make a network namespace")
    command = ["unshare", "--net", sys.executable, "-c", NETWORK]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout != network_name()
    assert done.stdout.partition("/")[0] == network_name().partition("/")[0]
