"""A real Prometheus that scrapes what a test shows it, on ports of loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvicorn
from starlette.applications import Starlette

DEPLOY = Path(__file__).parents[2] / "deploy"
PATIENCE_S = 120.0


def need(program: str) -> str:
    """Return where a program is; skip where it is not, but not where all is to be tested."""
    path = shutil.which(program)
    if path is None:
        assert os.environ.get("CI") != "true", f"{program} is not installed"
        pytest.skip(f"{program} is not installed")
    return path


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


@contextmanager
def served(app: Starlette) -> Iterator[int]:
    """Serve an application in a thread, and yield its port."""
    sock = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        sock.close()


class Prometheus:
    """One that runs."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def query(self, expr: str) -> list[Any]:
        """Return the series that an expression has now; fail with its words where it cannot be read."""
        found: list[Any] = self.ask(f"query?{urllib.parse.urlencode({'query': expr})}")["result"]
        return found

    def ask(self, path: str) -> Any:
        """Return the data of an answer."""
        try:
            with urllib.request.urlopen(f"{self._url}/{path}", timeout=30) as answer:
                return msgspec.json.decode(answer.read())["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{path}: {error.read().decode()}") from None


@contextmanager
def prometheus(folder: Path, jobs: dict[str, tuple[str, list[int]]]) -> Iterator[Prometheus]:
    """Start one with our alerts; ``jobs`` are paths and ports by name."""
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(DEPLOY / "prometheus" / "alerts.yml")],
        "scrape_configs": [
            {
                "job_name": name,
                "metrics_path": path,
                "scrape_timeout": "1s",
                "static_configs": [{"targets": [f"127.0.0.1:{each}" for each in ports]}],
            }
            for name, (path, ports) in jobs.items()
        ],
    }
    file = folder / "prometheus.yml"
    file.write_bytes(msgspec.json.encode(config))  # JSON is YAML too.
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                need("prometheus"),
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        _wait_for(port, process, folder / "log")
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline_s, log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.05)
