"""Traces of torch's profiler (Kineto, in Chrome's format): what ran when, on which thread, under which calls.

They are read in pieces and kept as columns: a trace of gigabytes needs some tens of bytes for every event.
Plain or compressed by gzip; the form is found by looking at it.
"""

from __future__ import annotations

import gzip
import re
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.observe.places import opened

PIECE = 16 << 20
"""Bytes that are parsed together."""
_LONGEST = 1 << 29
"""Without the end of an event: then it is no trace."""
_TRIES = 64
_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')

Kind = Literal["compute", "memory", "collective", "python"]
KINDS: tuple[Kind, ...] = ("compute", "memory", "collective", "python")
"""In the order of what keeps a device busy: what is further left hides what is further right."""
_PYTHON = KINDS.index("python")
_NOBODY = -1
"""Number of a call that has none: a garbage collection has no caller, and calls nobody."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_SKIPPED = -1
_MARK = -2

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch that torch or the user has given a name, such as an optimizer's step."""

    name: str
    start_us: float
    end_us: float


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel or operation by its name, or a Python function by all its callers."""

    name: str
    kind: Kind
    caller: int = -1
    """Which of the functions called it; -1: none that is known."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's events, as columns of the same length."""

    rank: int | None
    world_size: int | None
    groups: list[tuple[str, list[int]]]
    """Description and ranks of each process group."""
    functions: list[Function]
    function: Ints
    """Which of the functions ran."""
    caller: Ints
    """Of a Python function, the event that called it; -1: none that is known, or none at all."""
    thread: Ints
    start_us: Floats
    end_us: Floats
    marks: list[Mark]
    base_ns: int
    """What times count from, on the clock of the host; 0: not told."""
    events: int
    """In the file, whatever they are."""
    broken: int
    """That could not be understood."""


class _Args(msgspec.Struct, gc=False):
    python_id: int | None = msgspec.field(default=None, name="Python id")
    parent_id: int | None = msgspec.field(default=None, name="Python parent id")


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = ""
    name: str | None = ""
    pid: int | str | None = 0
    tid: int | str | None = 0
    ts: float | None = None
    dur: float | None = None
    args: _Args | None = None


class _Group(msgspec.Struct):
    pg_name: str | int = ""
    pg_desc: str = ""
    ranks: list[int] = []


class _Distributed(msgspec.Struct):
    rank: int | None = None
    world_size: int | None = None
    pg_config: list[_Group] = []


class _Head(msgspec.Struct):
    distributed: _Distributed | None = msgspec.field(default=None, name="distributedInfo")
    base_ns: int = msgspec.field(default=0, name="baseTimeNanoseconds")


_HEAD = msgspec.json.Decoder(_Head)
_DECODER = msgspec.json.Decoder(list[_Event])
_RAW = msgspec.json.Decoder(list[msgspec.Raw])
_ONE = msgspec.json.Decoder(_Event)


def read_trace(path: Path | str) -> Trace:
    """Read a trace at a path or an address; InputError if it is none, or ends too early."""
    try:
        with opened(str(path)) as plain:
            is_gzip = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=plain)) if is_gzip else plain
            return parse_trace(stream, str(path))
    except (EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def parse_trace(stream: BinaryIO, place: str) -> Trace:
    """Read what the profiler wrote."""
    columns = _Columns()
    pieces = _Pieces(stream, place)
    for piece in pieces:
        columns.take(piece)
    if not columns.count:
        raise InputError(f"{place}: has no events, expected a trace of torch's profiler")
    return columns.trace(pieces.head())


# --- the file in pieces -------------------------------------------------------------------------


class _Pieces:
    """Yields JSON arrays of whole events; knows afterwards what was around them."""

    def __init__(self, stream: BinaryIO, place: str) -> None:
        self._stream, self._place = stream, place
        self._before = self._after = b""

    def __iter__(self) -> Iterator[list[_Event]]:
        rest = self._open()
        while more := self._stream.read(PIECE):
            rest += more
            for cut in _cuts(rest):
                events = _decode(rest[:cut])
                if events is not None:
                    yield events
                    rest = rest[cut:].lstrip(b" \t\r\n,")
                    break
            else:
                if len(rest) > _LONGEST:
                    raise InputError(f"{self._place}: is no JSON, expected a trace of torch's profiler")
        yield self._close(rest)

    def _open(self) -> bytes:
        """Return what follows the bracket of the events."""
        data = self._stream.read(PIECE)
        if not data.strip():
            raise InputError(f"{self._place}: is empty, expected a trace of torch's profiler")
        bare = data.lstrip()
        if bare[:1] == b"[":
            return bare[1:]
        while (match := _EVENTS.search(data)) is None:
            more = self._stream.read(PIECE)
            if not more or len(data) > _LONGEST or bare[:1] != b"{":
                raise InputError(f"{self._place}: has no traceEvents, expected a trace of torch's profiler")
            data += more
        self._before = data[: match.end()]
        return data[match.end() :]

    def _close(self, rest: bytes) -> list[_Event]:
        """Return the last events: up to the bracket behind which the document ends."""
        end = len(rest)
        for _ in range(_TRIES):
            end = rest.rfind(b"]", 0, end)
            if end < 0:
                break
            events = _decode(rest[:end]) if self._is_end(rest[end:]) else None
            if events is not None:
                self._after = rest[end:]
                return events
        raise InputError(f"{self._place}: ends in the middle of its events, expected a whole trace")

    def _is_end(self, after: bytes) -> bool:
        try:
            msgspec.json.decode((self._before or b"[") + after, type=msgspec.Raw)
        except msgspec.DecodeError:
            return False
        return True

    def head(self) -> _Head:
        """Return what is told around the events; what is not as expected tells nothing."""
        if not self._before:
            return _Head()
        try:
            return _HEAD.decode(self._before + self._after)
        except msgspec.MsgspecError:
            return _Head()


def _cuts(data: bytes) -> Iterator[int]:
    """Yield places near the end where an event may be over, the last first."""
    window = max(0, len(data) - (1 << 20))
    found = [match.start() + 1 for match in _BOUNDARY.finditer(data, window)]
    yield from found[: -_TRIES - 1 : -1]


def _decode(data: bytes) -> list[_Event] | None:
    """Return events, or None if these are not whole ones; single ones that are odd become empty."""
    text = b"[" + data.rstrip(b" \t\r\n,") + b"]"
    try:
        return _DECODER.decode(text)
    except msgspec.ValidationError:
        return [_decode_one(each) for each in _RAW.decode(text)]
    except (msgspec.DecodeError, RecursionError):
        return None


def _decode_one(raw: msgspec.Raw) -> _Event:
    try:
        return _ONE.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Event(ph="?")


# --- events as columns --------------------------------------------------------------------------


class _Columns:
    """Gathers what is kept of events."""

    def __init__(self) -> None:
        self.count = self._broken = 0
        self._kinds: dict[tuple[str | None, str | None], int] = {}
        self._names: dict[str, int] = {}
        self._threads: dict[Any, int] = {}
        self._name, self._kind, self._thread = array("q"), array("b"), array("q")
        self._start, self._end = array("d"), array("d")
        self._python, self._parent = array("q"), array("q")
        self._marks: list[Mark] = []

    def take(self, events: list[_Event]) -> None:
        """Add events; this is where the time goes."""
        kinds, names, threads = self._kinds, self._names, self._threads
        self.count += len(events)
        for event in events:
            if event.ph != "X":
                self._broken += event.ph == "?"
                continue
            key = (event.cat, event.name)
            kind = kinds.get(key)
            if kind is None:
                kind = kinds[key] = _kind_of(event.cat or "", event.name or "")
            if kind == _SKIPPED:
                continue
            start, lasted = event.ts, event.dur
            if start is None or lasted is None or lasted < 0:
                self._broken += 1
                continue
            if kind == _MARK:
                self._marks.append(Mark(name=event.name or "", start_us=start, end_us=start + lasted))
                continue
            self._kind.append(kind)
            self._name.append(names.setdefault(event.name or "", len(names)))
            self._thread.append(threads.setdefault((event.pid, event.tid), len(threads)))
            self._start.append(start)
            self._end.append(start + lasted)
            args = event.args
            if kind != _PYTHON or args is None:
                self._python.append(_NOBODY)
                self._parent.append(_NOBODY)
                continue
            self._python.append(_NOBODY if args.python_id is None else args.python_id)
            self._parent.append(_NOBODY if args.parent_id is None else args.parent_id)

    def trace(self, head: _Head) -> Trace:
        """Return all of it."""
        functions, function, caller = self._functions()
        told = head.distributed or _Distributed()
        return Trace(
            rank=told.rank,
            world_size=told.world_size,
            groups=[(group.pg_desc or str(group.pg_name), group.ranks) for group in told.pg_config],
            functions=functions,
            function=function,
            caller=caller,
            thread=np.array(self._thread, np.int64),
            start_us=np.array(self._start),
            end_us=np.array(self._end),
            marks=self._marks,
            base_ns=head.base_ns,
            events=self.count,
            broken=self._broken,
        )

    def _functions(self) -> tuple[list[Function], Ints, Ints]:
        """Return the functions, a Python one for every way to it, and each event's own and its caller."""
        # Where an object lies differs from worker to worker; what is called on it does not.
        names, numbers = _bare(list(self._names))
        found: dict[tuple[int, int, int], int] = {}
        function, caller = np.empty(len(self._name), np.int64), np.full(len(self._name), -1)
        is_python = np.array(self._kind, np.int8) == _PYTHON
        for place in np.flatnonzero(~is_python).tolist():
            key = (self._kind[place], numbers[self._name[place]], -1)
            function[place] = found.setdefault(key, len(found))
        # Calls are numbered as they begin: whoever calls has a lower number than whom it calls.
        events: dict[int, int] = {}
        calls = np.flatnonzero(is_python)
        for place in calls[np.argsort(np.array(self._python, np.int64)[calls], kind="stable")].tolist():
            above = events.get(self._parent[place], -1) if self._parent[place] != _NOBODY else -1
            key = (_PYTHON, numbers[self._name[place]], -1 if above < 0 else int(function[above]))
            function[place] = found.setdefault(key, len(found))
            caller[place] = above
            if self._python[place] != _NOBODY:
                events[self._python[place]] = place
        functions = [Function(name=names[name], kind=KINDS[kind], caller=by) for kind, name, by in found]
        return functions, function, caller


def _bare(names: list[str]) -> tuple[list[str], list[int]]:
    """Return names without addresses, each once, and which of them each name has become."""
    found: dict[str, int] = {}
    numbers = [found.setdefault(_ADDRESS.sub("", name), len(found)) for name in names]
    return list(found), numbers


def _kind_of(category: str, name: str) -> int:
    """Return the kind of an event, or that it is a mark, or that nobody needs it."""
    category = category.lower()
    is_collective = name.startswith(("gloo:", "nccl:", "c10d::", "mpi:", "ucc:")) or "nccldev" in name.lower()
    if category == "python_function":
        return _PYTHON
    if category == "kernel":
        return KINDS.index("collective" if is_collective or "nccl" in name.lower() else "compute")
    if category in ("gpu_memcpy", "gpu_memset"):
        return KINDS.index("memory")
    if category in ("cuda_runtime", "cuda_driver"):
        return (
            KINDS.index("memory")
            if re.match(r"(cuda|cu)(Malloc|HostAlloc|Free|HostRegister)", name)
            else _SKIPPED
        )
    if category == "cpu_op":
        is_memory = name in ("aten::copy_", "aten::_pin_memory", "aten::pin_memory")
        return KINDS.index("collective" if is_collective else "memory" if is_memory else "compute")
    if category in ("user_annotation", "gpu_user_annotation"):
        return KINDS.index("collective") if is_collective else _MARK
    return _SKIPPED
