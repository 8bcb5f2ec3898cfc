"""Runs health checks of a node: any command with the exit codes of Nagios, on a cadence or around a job.

0 is fine, 1 a warning, 2 critical, and everything else, a check that takes too long or cannot be started as
well, unknown: a broken check says nothing about the node. What came of it is a row; rows are appended to a
file of JSON lines that ``holdfast reliability`` reads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.errors import InputError

Moment = Literal["periodic", "prolog", "epilog"]
OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
_MOST_TEXT = 500
_BY_WEIGHT = (CRITICAL, WARNING, UNKNOWN, OK)
"""The worst first; what is not known is less than a warning."""


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One check of a file of checks."""

    name: str
    command: list[str]
    """A program and its arguments; no shell."""
    every_s: float = 300.0
    timeout_s: float = 60.0
    when: tuple[Moment, ...] = ("periodic",)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run of a check, in the words that Meta's GCM uses for its columns."""

    node: str
    health_check: str
    type: str
    """The moment."""
    result: int
    msg: str = msgspec.field(name="_msg")
    job_id: str | None = None
    start_time: datetime
    end_time: datetime


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    check: list[Check] = []


def read_checks(path: Path) -> list[Check]:
    """Return the checks of a file: tables ``[[check]]`` with name and command."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text()), _File).check
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {error}, expected tables [[check]] with name and command") from error
    names = [check.name for check in found]
    for name in sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"{path}: two checks are called {name!r}, expected one")
    for check in found:
        if not check.command or check.every_s <= 0 or check.timeout_s <= 0:
            raise InputError(f"{path}: check {check.name!r}: expected a command and positive times")
    return found


def run_check(check: Check, *, node: str, moment: Moment, job: str | None) -> Row:
    """Run a check to its end, or to the end of its time."""
    began = datetime.now(UTC)
    result, said = _run(check)
    return Row(
        node=node,
        health_check=check.name,
        type=moment,
        result=result,
        msg=said,
        job_id=job,
        start_time=began,
        end_time=datetime.now(UTC),
    )


def _run(check: Check) -> tuple[int, str]:
    try:
        process = subprocess.Popen(
            check.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return UNKNOWN, f"cannot be started: {error}"
    try:
        said = process.communicate(timeout=check.timeout_s)[0].decode(errors="replace").strip()
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Not waited for without end: what hangs in the kernel cannot be killed, and others want to run.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        if process.stdout is not None:
            process.stdout.close()
        return UNKNOWN, f"took longer than {check.timeout_s:g} s"
    code = process.returncode
    if code in (OK, WARNING, CRITICAL):
        return code, said[:_MOST_TEXT]
    return UNKNOWN, (said or f"exit code {code}")[:_MOST_TEXT]


def worst(rows: Sequence[Row]) -> int:
    """Return the code of the worst of them: what a prolog should exit with."""
    return min((row.result for row in rows), key=_BY_WEIGHT.index, default=OK)


class Book:
    """A file that rows are appended to, each whole; several processes may write at a time.

    What cannot be written is said once and lost. It is no reason to stop looking at the node, and none to
    call it bad: a full disk for our rows must not drain a cluster.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say
        self._is_failing = False

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows."""
        try:
            self._write(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                self._say(f"{self._path}: cannot be written: {error.strerror}; the checks go on")
            self._is_failing = True

    def _write(self, data: bytes) -> None:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(fd).st_size
            # A row that a full disk had cut short must not take the next one with it.
            is_cut = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            data = b"\n" * is_cut + data
            if os.write(fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(fd)


class Cadence:
    """When which check is due: each by its own beat, the first at once."""

    def __init__(self, checks: Sequence[Check], now_s: float) -> None:
        self._due_s: dict[str, float] = dict.fromkeys((check.name for check in checks), now_s)
        self._checks: Mapping[str, Check] = {check.name: check for check in checks}

    def take_due(self, now_s: float) -> list[Check]:
        """Return what is due; a check that was missed is not made up for."""
        due = [name for name, at_s in self._due_s.items() if at_s <= now_s]
        for name in due:
            every_s = self._checks[name].every_s
            missed = (now_s - self._due_s[name]) // every_s
            self._due_s[name] += (missed + 1) * every_s
        return [self._checks[name] for name in due]

    @property
    def next_s(self) -> float:
        """When the next one is due."""
        return min(self._due_s.values())


def keep_checking(checks: Sequence[Check], book: Book, *, node: str, until_s: float | None = None) -> None:
    """Run the checks by their cadence, until that time of the monotonic clock or for good."""
    cadence = Cadence(checks, time.monotonic())
    while until_s is None or time.monotonic() < until_s:
        for check in cadence.take_due(time.monotonic()):
            book.append([run_check(check, node=node, moment="periodic", job=None)])
        next_s = cadence.next_s if until_s is None else min(cadence.next_s, until_s)
        time.sleep(max(0.0, next_s - time.monotonic()))
