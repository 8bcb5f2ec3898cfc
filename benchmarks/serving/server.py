"""A real ``holdfast serve``, the senders that load it, and somebody who looks at its pages meanwhile."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from holdfast.observe.eventlog import read_events
from holdfast.serve.store import Store

PATIENCE_S = 120.0


class Served:
    """One server, always at the same address."""

    def __init__(self, folder: Path, store: str, *, is_open: bool = False) -> None:
        """Start it; ``is_open``: whoever is on this machine may read, and nobody sends."""
        self.store = store
        self._is_open = is_open
        self.token = secrets.token_hex()
        self._folder = folder
        self._out = (folder / "server.txt").open("ab")
        self._token_file = folder / "token"
        self._token_file.write_text(self.token)
        self._token_file.chmod(0o600)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process: psutil.Popen | None = None
        self.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "holdfast.cli", "serve", str(self._folder / "none"), "--store"]
        command += [self.store, "--port", str(self.port)]
        command += [] if self._is_open else ["--token-file", str(self._token_file)]
        self.process = psutil.Popen(command, stdout=self._out, stderr=subprocess.STDOUT)
        until_s = time.monotonic() + PATIENCE_S
        while self.get("/healthz")[0] != 200:
            if time.monotonic() > until_s or self.process.poll() is not None:
                raise SystemExit(f"the server does not answer: {self.said[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """End it."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)
        self._out.close()

    @property
    def said(self) -> str:
        """What it has printed."""
        return (self._folder / "server.txt").read_text(errors="replace")

    @property
    def memory_mb(self) -> float:
        """What it holds."""
        assert self.process is not None
        with contextlib.suppress(psutil.Error):
            return float(self.process.memory_info().rss) / 1e6
        return 0.0

    def get(self, path: str) -> tuple[int, float]:
        """Return the status of a page, 0 if there is none, and the seconds until all of it was there."""
        began_s = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            shown = {} if self._is_open else {"Authorization": f"Bearer {self.token}"}
            connection.request("GET", path, headers=shown)
            reply = connection.getresponse()
            reply.read()
            return reply.status, time.monotonic() - began_s
        except (OSError, http.client.HTTPException):
            return 0, time.monotonic() - began_s
        finally:
            connection.close()


class Load(NamedTuple):
    """What jobs send."""

    jobs: int
    rate: float
    """Events a second, of all of them."""
    seconds: float
    is_calm: bool = False
    """Whether nothing goes wrong."""


class Crowd:
    """Processes in which many jobs write and send."""

    def __init__(self, folder: Path, server: Served, load: Load) -> None:
        self.folder = folder / "jobs"
        self.folder.mkdir()
        self._parts = []
        count = 4 if load.jobs >= 4 else 1
        for number in range(count):
            words = [sys.executable, "-m", "serving.senders", str(self.folder), "--server", server.url]
            words += ["--jobs", str(load.jobs // count), "--first", str(number * (load.jobs // count))]
            words += ["--rate", str(load.rate / count), "--seconds", str(load.seconds)]
            words += ["--calm"] if load.is_calm else []
            env = os.environ | {
                "HOLDFAST_TOKEN": server.token,
                "PYTHONPATH": str(Path(__file__).parents[1]),
            }
            self._parts.append(subprocess.Popen(words, stdout=subprocess.PIPE, env=env))

    @property
    def is_over(self) -> bool:
        """Whether all is written and sent."""
        return all(part.poll() is not None for part in self._parts)

    def drained_s(self) -> float:
        """Wait for the end; return how long after the last event all of them were acknowledged."""
        replies = [part.communicate()[0] for part in self._parts]
        for part in self._parts:
            if part.returncode:
                raise SystemExit(f"a sender ended with {part.returncode}; nothing can be said of the server")
        return max(float(json.loads(reply)["drained_s"]) for reply in replies)

    def written(self) -> dict[str, list[str]]:
        """Return the ids of the events on disk, by job."""
        return {
            run_dir.name: [record.stamp.event_id for record in read_events(run_dir / "events.jsonl").records]
            for run_dir in sorted(self.folder.iterdir())
        }


class Looker(threading.Thread):
    """Looks at one page after the other, as a few people would."""

    def __init__(self, server: Served, paths: list[str], *, every_s: float = 0.25) -> None:
        super().__init__(daemon=True)
        self.took: dict[str, list[float]] = {path: [] for path in paths}
        """Seconds, by page."""
        self.failures = 0
        self._server, self._paths, self._every_s = server, paths, every_s
        self._is_over = threading.Event()

    def run(self) -> None:
        """Look until told to stop."""
        number = 0
        while not self._is_over.wait(self._every_s):
            path = self._paths[number % len(self._paths)]
            status, seconds = self._server.get(path)
            number += 1
            if status == 200:
                self.took[path].append(seconds)
            else:
                self.failures += 1

    def stop(self) -> None:
        """End it."""
        self._is_over.set()
        self.join()


def compare(store: str, written: dict[str, list[str]]) -> dict[str, int]:
    """Count what is in the store against what was written, event by event."""
    lost = doubled = foreign = total = 0
    opened = Store.open(store)
    try:
        for key, ids in written.items():
            kept = _ids(opened, key)
            total += len(ids)
            lost += len(set(ids) - set(kept))
            doubled += len(kept) - len(set(kept))
            foreign += len(set(kept) - set(ids))
    finally:
        opened.close()
    return {"events": total, "lost": lost, "doubled": doubled, "foreign": foreign}


def _ids(store: Store, key: str) -> list[str]:
    found: list[str] = []
    after = 0
    while kept := store.records(key, after=after):
        found += [each.record.stamp.event_id for each in kept]
        after = kept[-1].number
    return found
