"""The TCP connections of this process, and what the kernel counts about each (``TCP_INFO``).

Nothing is sent and no socket is changed. Traffic that does not go through TCP sockets of this process, such
as RDMA, NVLink or shared memory, is not seen. Elsewhere than on Linux there is nothing to find.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Connection(NamedTuple):
    """One established TCP connection of this process."""

    fd: int
    local: str
    """Address and port, such as ``10.0.0.1:4711`` or ``[fe80::1]:4711``."""
    peer: str


class Counters(NamedTuple):
    """What the kernel counts about a connection since it was made; None: this kernel does not tell."""

    mss_bytes: int | None
    """The largest segment that it sends, now."""
    rtt_us: int | None
    """The smoothed round trip, now."""
    retransmits: int | None
    bytes_acked: int | None
    bytes_received: int | None
    notsent_bytes: int | None
    """Written and not sent yet, now."""
    min_rtt_us: int | None
    segments_sent: int | None
    """Segments with data."""
    delivery_rate_bytes_s: int | None
    """Of the last flight."""
    busy_us: int | None
    """With data on its way or waiting for it, in whole ticks of the kernel (1 to 10 ms)."""
    rwnd_limited_us: int | None
    """Part of that: the receiver had no room."""
    sndbuf_limited_us: int | None
    """Part of that: the sender's buffer was full."""
    spurious_retransmits: int | None
    """Those that the receiver had got already."""


class Traffic(NamedTuple):
    """A connection and its counters."""

    connection: Connection
    counters: Counters


_LAYOUT = struct.Struct("=16xI48xI28xI16xQQ8xII4xIQQQQ24xI")
"""``struct tcp_info`` of linux/tcp.h, as far as it is read; it only ever grows at its end."""
_ENDS = (20, 72, 104, 128, 136, 148, 152, 160, 168, 176, 184, 192, 220)
"""Where each counter ends: a kernel that returns less does not know it."""
_TCP_INFO = 11
_FORGET_AFTER = 16
_ESTABLISHED = b"\x01"


class _Seen(NamedTuple):
    """What is remembered of a descriptor."""

    inode: int
    is_tcp: bool
    connection: Connection | None


class SocketScanner:
    """Finds the connections again and again; remembers what the descriptors are, by number and inode.

    A socket costs one ``fstat``, a TCP socket one ``getsockopt`` more; the addresses of a connection are
    asked for once. What is no socket is looked at in every sixteenth scan: its number may belong to one then.
    """

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._files: set[int] = set()
        """Descriptors that are no sockets."""
        self._scans = 0
        # The interpreter's lock is kept: the call takes a microsecond, getting the lock back may take longer.
        self._getsockopt = ctypes.PyDLL(None).getsockopt
        self._buffer = ctypes.create_string_buffer(_LAYOUT.size)
        self._length = ctypes.c_uint32()
        self._arguments = (socket.IPPROTO_TCP, _TCP_INFO, self._buffer, ctypes.byref(self._length))

    def scan(self) -> list[Traffic]:
        """Return the established connections and their counters, in the order of their descriptors."""
        if self._scans % _FORGET_AFTER == 0:
            self._files.clear()
        self._scans += 1
        seen: dict[int, _Seen] = {}
        found = []
        for fd, inode in _open_sockets(self._files):
            now = self._look(fd, inode)
            seen[fd] = now
            if now.connection is not None:
                found.append(Traffic(now.connection, self._counters()))
        self._seen = seen
        return found

    def _look(self, fd: int, inode: int) -> _Seen:
        """Return what a socket is; if it is a connection, its counters are in the buffer now."""
        before = self._seen.get(fd)
        if before is not None and before.inode != inode:
            before = None
        if before is not None and not before.is_tcp:
            return before
        self._length.value = _LAYOUT.size
        is_tcp = self._getsockopt(fd, *self._arguments) == 0
        if not is_tcp or self._buffer[0] != _ESTABLISHED:  # Listening, connecting, or closed by an end.
            return _Seen(inode, is_tcp, None)
        if before is not None and before.connection is not None:
            return before
        return _Seen(inode, True, _connection(fd))

    def _counters(self) -> Counters:
        return as_counters(_LAYOUT.unpack_from(self._buffer), self._length.value)


def connections() -> list[Connection]:
    """Return the TCP connections of this process."""
    return [traffic.connection for traffic in SocketScanner().scan()]


def as_counters(values: tuple[int, ...], length: int) -> Counters:
    """Return counters of which the kernel has filled in the first ``length`` bytes."""
    if length >= _LAYOUT.size:
        return Counters._make(values)
    return Counters._make(value if end <= length else None for value, end in zip(values, _ENDS, strict=True))


def network_name() -> str:
    """Return a name of this machine and network namespace: within it a loopback address means one thing."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:  # Hidden in this container.
        return socket.gethostname()


def delayed_acks() -> int | None:
    """Return how often a receiver in this network namespace was so late that the kernel answered for it.

    It does so 40 ms after the data has come, and until then the sender is busy, however fast the link.
    """
    try:
        lines = Path("/proc/self/net/netstat").read_bytes().splitlines()
        names, values = (line.split() for line in lines if line.startswith(b"TcpExt:"))
        return int(values[names.index(b"DelayedACKs")])
    except (OSError, ValueError):
        return None


def _open_sockets(files: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the descriptors that are sockets, and their inodes; pass over ``files``, and add to them."""
    try:
        names = os.listdir("/proc/self/fd")  # noqa: PTH208 - names only, no paths.
    except OSError:  # No Linux.
        return
    for fd in sorted({*map(int, names)} - files):
        try:
            status = os.fstat(fd)
        except OSError:  # Closed since it was listed; the descriptor of the listing itself always is.
            continue
        if stat.S_ISSOCK(status.st_mode):
            yield fd, status.st_ino
        else:
            files.add(fd)


def _connection(fd: int) -> Connection | None:
    try:
        # A second descriptor: whatever happens, the object must not close that of its owner.
        with socket.socket(fileno=os.dup(fd)) as copy:
            return Connection(fd, _endpoint(copy.getsockname()), _endpoint(copy.getpeername()))
    except OSError:  # Closed since it was looked at.
        return None


def _endpoint(address: tuple[str, int]) -> str:
    host, port = address[0].partition("%")[0].removeprefix("::ffff:"), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
