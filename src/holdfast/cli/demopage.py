"""The control room beside the demo: opened before the job, ended after it."""

from __future__ import annotations

import importlib.util
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_S = 20.0
_ADDRESS = re.compile(rb" at (http://\S+)")
_NEEDED = (
    "alembic",
    "jinja2",
    "polars",
    "prometheus_client",
    "scipy",
    "sqlalchemy",
    "starlette",
    "uvicorn",
)


@contextmanager
def page_of(runs: Path) -> Iterator[str]:
    """Give in words where the runs of a folder can be seen, while the block lasts."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        yield f"no page: {missing[0]} is missing, pip install 'holdfast[serve]'"
        return
    command = [sys.executable, "-P", "-m", "holdfast.cli", "serve", str(runs), "--port", "0"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, bufsize=0
    )
    try:
        address = _address(server)
        yield f"watch it at {address}" if address else "no page: the server does not start"
    finally:
        server.terminate()
        server.communicate()


def _address(server: subprocess.Popen[bytes]) -> str:
    """Wait until the server says where it is; empty if it does not."""
    assert server.stdout is not None
    said = b""
    until_s = time.monotonic() + _PATIENCE_S
    while (left_s := until_s - time.monotonic()) > 0:
        ready, _, _ = select.select([server.stdout], [], [], left_s)
        chunk = server.stdout.read(4096) if ready else b""
        said += chunk or b""
        found = _ADDRESS.search(said)
        if found is not None and b"\n" in said[found.end() :]:
            return found[1].decode()
        if not chunk:
            break
    return ""
