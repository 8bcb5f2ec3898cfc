"""What a worker says to its launcher: that the others survive it, and, when its script has raised, why.

Both go as lines of JSON through one pipe. An error also goes to torchelastic's error file.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import re
import stat
import sys
import time
import traceback
from collections.abc import Collection
from pathlib import Path

import msgspec

LIMIT_BYTES = 48 * 1024
"""Less than a pipe holds, so that last words never wait for a reader."""
SURVIVES = b'{"survives": true}'
"""The line by which a worker says that the job goes on without it."""


class LastWords(msgspec.Struct, frozen=True, kw_only=True):
    """An error as it travels to the launcher."""

    error: str
    """The error in one line, as the end of a traceback has it."""
    traceback: str
    seen_s: float


class Report:
    """The pipe to the launcher; native crashes write their stacks there too."""

    def __init__(self, fd: int) -> None:
        # Closed on exec, so that programs which the worker starts never hold it.
        os.set_inheritable(fd, False)
        faulthandler.enable(file=fd)
        self._fd = fd
        self._identity = self._look()

    def send(self, words: LastWords) -> bool:
        """Say it, and return whether it went out."""
        return self.send_line(_encode(words))

    def send_line(self, line: bytes) -> bool:
        """Say one line, and return whether it went out."""
        try:
            if self._look() != self._identity:  # The script closed it, and the number may be another file's.
                return False
            os.set_blocking(self._fd, False)
            return os.write(self._fd, line + b"\n") == len(line) + 1
        except OSError:
            return False

    def _look(self) -> tuple[int, int, bool]:
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino, stat.S_ISFIFO(status.st_mode)


_reports: list[Report] = []
"""The worker's own pipe, once it is open."""
_failures: list[str] = []
"""Why the script ended, if not by success."""


def open_report(fd: int) -> Report:
    """Open the pipe to the launcher, for this process from now on."""
    _reports[:] = [Report(fd)]
    return _reports[0]


def say_survives() -> bool:
    """Tell the launcher that the job goes on when this worker dies; False where no launcher listens.

    To be called once the hub has told the worker its first generation. Before that nobody has agreed to go
    on without it, and its death ends the attempt.
    """
    return any(report.send_line(SURVIVES) for report in _reports)


def note_failure(reason: str) -> None:
    """Remember that the script has failed: what runs at the end of the process must not wait for peers."""
    _failures.append(reason)


def has_failed() -> bool:
    """Say whether the script has ended without success."""
    return bool(_failures) or getattr(sys, "last_value", None) is not None


def describe(error: BaseException, *, own_files: Collection[str]) -> LastWords:
    """Turn an exception into last words, without the frames of our own files at its beginning."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in own_files:
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    error.__traceback__ = trace
    return LastWords(error=_one_line(error), traceback=text, seen_s=time.monotonic())


def after_hook(error: BaseException, words: LastWords) -> LastWords:
    """Call the script's own excepthook, as the interpreter would, and return the words as it prints them."""
    if sys.excepthook is sys.__excepthook__:
        return words
    printed = io.StringIO()
    with contextlib.suppress(Exception), contextlib.redirect_stderr(printed):
        sys.excepthook(type(error), error, error.__traceback__)
    # torch puts the rank before every line once a process group is there; the launcher says whose it is.
    text = re.sub(r"^\[rank\d+\]: ?", "", printed.getvalue(), flags=re.MULTILINE)
    return msgspec.structs.replace(words, traceback=text) if text else words


def write_error_file(words: LastWords) -> None:
    """Write torchelastic's error file, where one is asked for and ``@record`` has not written it yet."""
    name = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not name or Path(name).exists():
        return
    extra = {"py_callstack": words.traceback, "timestamp": str(int(time.time()))}
    with contextlib.suppress(OSError):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(json.dumps({"message": {"message": words.error, "extraInfo": extra}}))


def _one_line(error: BaseException) -> str:
    summary = traceback.TracebackException(type(error), error, None, compact=True)
    summary.__notes__ = None
    lines = list(summary.format_exception_only())[-1].strip().splitlines()
    first = lines[0][:2000] if lines else type(error).__name__
    return first if len(lines) < 2 else f"{first} …"


def _encode(words: LastWords) -> bytes:
    """Return the words as JSON that fits, the end of the traceback being worth more than its beginning."""
    text = words.traceback
    while True:
        fields = {"error": words.error, "traceback": text, "seen_s": words.seen_s}
        data = json.dumps(fields, ensure_ascii=False).encode(errors="replace")
        if len(data) < LIMIT_BYTES:
            return data
        text = text[len(text) // 2 + 1 :]
