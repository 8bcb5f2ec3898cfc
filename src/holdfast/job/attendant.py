"""A thread of a training process that answers a guard's questions: where is the training thread, just now?

It looks for a question twice a second, which costs one ``stat``; only when there is one does it do anything.
Answers are files that are replaced by rename. Python's own frames need no ptrace, and a rank that hangs in a
communication call still answers, since such calls let other threads run.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import msgspec

from holdfast.job.files import replace_file
from holdfast.job.profiling import profile_path
from holdfast.telemetry import Ask, Lines, LineSeen, ProfileOrder

_ASK = msgspec.json.Decoder(Ask)
_PROFILE_ORDER = msgspec.json.Decoder(ProfileOrder)
LOOK_EVERY_S = 0.5
SAMPLE_EVERY_S = 0.005
LONGEST_S = 10.0
_MOST_LINES = 500
_DEEPEST = 60
_INNER = 5

_Line = tuple[str, int, str]
"""File, number, function."""
_Place = tuple[_Line, tuple[_Line, ...]]


def ask_path(folder: Path) -> Path:
    """Return where a guard lays its question to the ranks of a node."""
    return folder / "ask.json"


def answer_path(folder: Path, ask: str, rank: int) -> Path:
    """Return where a rank lays its answer."""
    return folder / f"answer_{ask}_{rank}.json"


class Attendant:
    """Waits for questions in a thread of its own, for as long as the process lives."""

    def __init__(
        self,
        folder: Path,
        *,
        rank: int,
        thread: int,
        on_profile: Callable[[ProfileOrder], None] = lambda order: None,
    ) -> None:
        """Answer for ``thread``, the one that trains; pass on orders to profile it."""
        self.errors = 0
        self._folder = folder
        self._rank = rank
        self._thread = thread
        self._on_profile = on_profile
        self._asks = _Letters(ask_path(folder))
        self._orders = _Letters(profile_path(folder))

    def start(self) -> None:
        """Begin to wait."""
        threading.Thread(target=self._attend, name="holdfast-attendant", daemon=True).start()

    def _attend(self) -> None:
        while self._folder.exists():
            time.sleep(LOOK_EVERY_S)
            for look in (self._look_for_order, self._look):
                try:
                    look()
                except Exception:  # Nothing that goes wrong here is the training's business.
                    self.errors += 1

    def _look_for_order(self) -> None:
        letter = self._orders.new()
        if letter is not None:
            self._on_profile(_PROFILE_ORDER.decode(letter))

    def _look(self) -> None:
        letter = self._asks.new()
        if letter is None:
            return
        ask = _ASK.decode(letter)
        if self._rank in ask.ranks:
            lines = watch_lines(self._thread, rank=self._rank, ask=ask)
            if ask.dumps is not None:
                self._try_to_dump(Path(ask.dumps) / f"_dump_{self._rank}")
            replace_file(answer_path(self._folder, ask.id, self._rank), msgspec.json.encode(lines))

    def _try_to_dump(self, path: Path) -> None:
        """Write a dump ahead of the answer, which its readers wait for; without it the answer comes, too."""
        try:
            _dump(path)
        except Exception:  # Its folder may be on a disk that this node does not have.
            self.errors += 1


def _dump(path: Path) -> None:
    """Write what torch's Flight Recorder has, if it is there and was switched on."""
    recorder = sys.modules.get("torch._C._distributed_c10d")
    if recorder is not None and os.environ.get("TORCH_FR_BUFFER_SIZE", "0") != "0":
        replace_file(path, recorder._dump_fr_trace_json(includeCollectives=True, onlyActive=False))


class _Letters:
    """A file that a guard replaces now and then; what lay there before us is not for us."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _version(path)

    def new(self) -> bytes | None:
        """Return what has come since the last look."""
        version = _version(self._path)
        if version is None or version == self._seen:
            return None
        self._seen = version
        return self._path.read_bytes()


def _version(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def watch_lines(thread: int, *, rank: int, ask: Ask) -> Lines:
    """Return where a thread was, over some seconds."""
    counts: Counter[_Place] = Counter()
    until_s = time.monotonic() + min(ask.duration_s, LONGEST_S)
    samples = 0
    stack: list[str] = []
    last_s = time.monotonic() - SAMPLE_EVERY_S
    while True:
        frame = sys._current_frames().get(thread)
        # A look that comes late was kept waiting by Python's lock: the line that held it counts for that.
        now_s = time.monotonic()
        weight = max(1, round((now_s - last_s) / SAMPLE_EVERY_S))
        last_s = now_s
        if frame is not None:
            samples += weight
            counts[_place(frame)] += weight
            if len(counts) > _MOST_LINES:
                counts = Counter(dict(counts.most_common(_MOST_LINES // 2)))
            if time.monotonic() >= until_s:
                stack = _stack(frame)
        del frame  # It would keep the training's variables alive.
        if time.monotonic() >= until_s:
            break
        time.sleep(SAMPLE_EVERY_S)
    return Lines(ask=ask.id, rank=rank, samples=samples, lines=_told(counts), stack=stack)


def _place(frame: FrameType) -> _Place:
    """Return the innermost line of the user's own code, and the innermost frames of all."""
    inner: list[_Line] = []
    mine: _Line | None = None
    current: FrameType | None = frame
    for depth in range(_DEEPEST):
        if current is None or (mine is not None and depth >= _INNER):
            break
        line = (current.f_code.co_filename, current.f_lineno, current.f_code.co_name)
        if depth < _INNER:
            inner.append(line)
        if mine is None and not _is_library(line[0]):
            mine = line
        current = current.f_back
    return mine or inner[0], tuple(inner)


_LIBRARIES = ("site-packages", "dist-packages", "<frozen")
_STANDARD = os.path.dirname(os.__file__)  # noqa: PTH120 - compared with the names that frames have.


def _is_library(name: str) -> bool:
    return name.startswith(_STANDARD) or any(part in name for part in _LIBRARIES)


def _told(counts: Counter[_Place]) -> list[LineSeen]:
    return [
        LineSeen(
            count=count,
            file=file,
            line=line,
            function=function,
            source=_source(file, line),
            inner=[f"{name}: {_source(path, number)}" for path, number, name in inner],
        )
        for ((file, line, function), inner), count in counts.most_common(50)
    ]


def _source(file: str, line: int) -> str:
    import linecache

    return linecache.getline(file, line).strip()[:200]


def _stack(frame: FrameType) -> list[str]:
    lines: list[str] = []
    current: FrameType | None = frame
    while current is not None and len(lines) < _DEEPEST:
        lines.append(f"{current.f_code.co_filename}:{current.f_lineno} {current.f_code.co_name}")
        current = current.f_back
    return lines
