"""Is the port where the nodes are to meet ours to use? Asked before torch waits there for minutes."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import socket
import time
from datetime import timedelta

from holdfast.errors import InputError

_ANSWER_S = 3.0


def check_port_is_free(endpoint: str) -> None:
    """Raise when this node is to listen at the endpoint's port and cannot."""
    _, port = _split(endpoint)
    if port is None:
        return
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        with contextlib.suppress(OSError), socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EADDRINUSE):
                    raise InputError(
                        f"port {port} is taken on this machine ({error.strerror}): "
                        "give another --master-port, or none for a free one"
                    ) from error


def check_is_store(endpoint: str) -> None:
    """Raise when something on this machine listens at the endpoint that is not a launcher's store."""
    host, port = _split(endpoint)
    if not port or host not in {"localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()}:
        return
    with contextlib.suppress(OSError):
        socket.create_connection((host, port), timeout=1.0).close()
        if not _answers_as_store(host, port):
            raise InputError(
                f"port {port} is taken on this machine by something else than a rendezvous: "
                "give another --rdzv-endpoint"
            )


def _answers_as_store(host: str, port: int) -> bool:
    # In a child, because torch prints pages of native stack frames where the answer is no.
    child = os.fork()
    if child == 0:
        is_store = False
        with contextlib.suppress(BaseException):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            from torch.distributed import TCPStore  # type: ignore[attr-defined]

            TCPStore(host, port, is_master=False, timeout=timedelta(seconds=_ANSWER_S))
            is_store = True
        os._exit(0 if is_store else 1)
    return _exit_status(child, _ANSWER_S + 2.0) == 0


def _exit_status(child: int, timeout_s: float) -> int:
    """Reap the child and return its status; one that waits for ever is killed."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _split(endpoint: str) -> tuple[str, int | None]:
    host, colon, text = endpoint.rpartition(":")
    if not colon or endpoint.endswith("]"):
        return endpoint, None
    if not re.fullmatch("[0-9]+", text) or int(text) > 65535:
        raise InputError(f"port {text} of {endpoint!r} does not exist, expected 0 to 65535")
    return host.strip("[]"), int(text)
