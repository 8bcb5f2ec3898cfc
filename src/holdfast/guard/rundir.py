"""The run directory: where it lies and what is in it.

::

    holdfast_runs/20261115-194012-4f1c/
      run.json                     who, what, when, versions, effective settings   (node 0)
      events.jsonl                 the event log; events.node1.jsonl for node 1
      summaries.jsonl              one row per second and node while steps are made
      orders/4f1c.json             what a person asked for through a server, until it is carried out
      .sent.node0.json             up to where a server has the node's events and summaries
      logs/attempt_0/rank_3.log    output and traceback of one worker
      errors/attempt_0/rank_3.json torchelastic's error file of one worker
"""

from __future__ import annotations

import os
import platform
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.guard.say import Say
from holdfast.guard.text import encode_json
from holdfast.settings import Effective
from holdfast.values import SCHEMA_VERSION

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|none")
"""Run ids that nobody chose."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Content of ``run.json``: what a reader needs to know before it reads the rest."""

    schema: int
    run_id: str
    argv: list[str]
    started_at: str
    host: str
    launcher_pid: int
    rings: str
    settings: dict[str, Effective]
    launch: dict[str, Any]
    versions: dict[str, str]
    key: str = ""
    """Different for every run, the same on all its nodes; empty in files of before there were servers."""


class RunDir:
    """A run directory that may turn out not to be writable; training goes on then, and it is said once."""

    def __init__(self, path: Path, say: Say) -> None:
        self.path = path
        self._say = say
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            say.cannot_write(path, error)

    def log(self, attempt: int, rank: int) -> Path:
        """Return the file of a worker's output."""
        return self.path / "logs" / f"attempt_{attempt}" / f"rank_{rank}.log"

    def error(self, attempt: int, rank: int) -> Path:
        """Return the file of a worker's error, in torchelastic's format."""
        return self.path / "errors" / f"attempt_{attempt}" / f"rank_{rank}.json"

    def write_info(self, info: RunInfo) -> None:
        """Write ``run.json``, all of it or nothing."""
        file = self.path / "run.json"
        fresh = file.with_suffix(f".{os.getpid()}.new")
        try:
            fresh.write_bytes(msgspec.json.format(encode_json(info), indent=2) + b"\n")
            fresh.rename(file)
        except OSError as error:
            self._say.cannot_write(file, error)


def default_path(runs: Path, run_id: str, now: datetime) -> Path:
    """Return a new folder's name, sorted by time; node 0 tells it to the others."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", run_id)[:24] if not _UUID.fullmatch(run_id) else ""
    return runs / "-".join(filter(None, [f"{now.astimezone(UTC):%Y%m%d-%H%M%S}", name, secrets.token_hex(2)]))


def make_key() -> str:
    """Return a key for a new run."""
    return secrets.token_hex(16)


def make_info(
    *,
    run_id: str,
    argv: list[str],
    rings: Path,
    settings: Mapping[str, Effective],
    launch: Mapping[str, Any],
) -> RunInfo:
    """Describe this run and this machine."""
    return RunInfo(
        schema=SCHEMA_VERSION,
        run_id=run_id,
        argv=argv,
        started_at=datetime.now(UTC).isoformat(),
        host=platform.node(),
        launcher_pid=os.getpid(),
        rings=str(rings),
        settings=dict(settings),
        launch=dict(launch),
        versions={
            "holdfast": __version__,
            "python": platform.python_version(),
            "torch": _version("torch"),
            "kernel": platform.release(),
        },
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
