"""Bytes that have gone through each TCP connection of this network namespace, asked of the kernel at once.

Linux answers such a question (``sock_diag``) for all processes, without being root and without a hand on
anybody's sockets. Elsewhere, or where a container forbids it, there is nothing to be told.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterable, Iterator

_NETLINK_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_DONE, _ERROR = 3, 2
_ESTABLISHED = 1 << 1
_INFO = 2
_HEADER = struct.Struct("=IHHII")
_QUESTION = struct.Struct("=BBBBI48x")
_ATTRIBUTE = struct.Struct("=HH")
_BYTES = struct.Struct("=QQ")
"""Acknowledged and received, in ``struct tcp_info`` of linux/tcp.h."""
_BYTES_AT = 120
_INODE = struct.Struct("=I")
_INODE_AT = 68
_MESSAGE = 72
"""Length of ``struct inet_diag_msg``; attributes follow."""
_ROOM = 1 << 18
_TIMEOUT_S = 0.2


class SocketBytes:
    """Asks again and again."""

    def __init__(self, namespace: str | None = None) -> None:
        """Ask about this process's own network namespace, or another, such as ``/proc/123/ns/net``."""
        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError, AttributeError):
            self._socket = _open(namespace)
            self._socket.settimeout(_TIMEOUT_S)

    def read(self) -> dict[int, int]:
        """Return the bytes through each connection in both directions so far, by its socket's inode."""
        found: dict[int, int] = {}
        if self._socket is None:
            return found
        try:
            for family in (socket.AF_INET, socket.AF_INET6):
                found |= self._ask(self._socket, family)
        except (OSError, struct.error):  # Forbidden, or no answer that can be understood.
            self.close()
            return {}
        return found

    def close(self) -> None:
        """Ask no more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, link: socket.socket, family: int) -> dict[int, int]:
        question = _QUESTION.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ESTABLISHED)
        link.send(_HEADER.pack(_HEADER.size + len(question), _BY_FAMILY, _REQUEST_DUMP, 0, 0) + question)
        found: dict[int, int] = {}
        while True:
            for kind, body in _messages(link.recv(_ROOM)):
                if kind == _DONE:
                    return found
                if kind == _ERROR:
                    raise OSError("the kernel does not tell of sockets")
                count = _count(body)
                if count is not None:
                    found[_INODE.unpack_from(body, _INODE_AT)[0]] = count


def _open(namespace: str | None) -> socket.socket:
    """Return a socket to the kernel; it stays in the namespace that it was made in."""
    if namespace is None:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG)
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if libc.setns(there, 0) != 0:  # Only root may go there.
                raise OSError(ctypes.get_errno(), "cannot enter the network namespace")
        finally:
            os.close(there)
        try:
            return socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG)
        finally:
            libc.setns(home, 0)
    finally:
        os.close(home)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, at)
        yield kind, data[at + _HEADER.size : at + length]
        at += max(_HEADER.size, (length + 3) & ~3)


def _count(body: bytes) -> int | None:
    at = _MESSAGE
    while at < len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if kind == _INFO and length >= _ATTRIBUTE.size + _BYTES_AT + _BYTES.size:
            return int(sum(_BYTES.unpack_from(body, at + _ATTRIBUTE.size + _BYTES_AT)))
        at += max(_ATTRIBUTE.size, (length + 3) & ~3)
    return None


def sockets_of(pids: Iterable[int], root: str = "/proc") -> dict[int, set[int]]:
    """Return the inodes of the sockets that each process has; who is gone has none."""
    found: dict[int, set[int]] = {}
    for pid in pids:
        mine = found.setdefault(pid, set())
        folder = f"{root}/{pid}/fd"
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208 - names only, no paths.
                with contextlib.suppress(OSError, ValueError):
                    target = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - thousands of them.
                    if target.startswith("socket:["):
                        mine.add(int(target[8:-1]))
    return found


def namespaces(pids: Iterable[int], root: str = "/proc") -> list[str | None]:
    """Return the network namespaces that processes are in, each once; None: that of this process."""
    found: dict[int, str | None] = {}
    with contextlib.suppress(OSError):
        found[os.stat(f"{root}/self/ns/net").st_ino] = None  # noqa: PTH116 - links that lead to no path.
    for pid in pids:
        path = f"{root}/{pid}/ns/net"
        with contextlib.suppress(OSError):
            found.setdefault(os.stat(path).st_ino, path)  # noqa: PTH116
    return list(found.values()) or [None]
