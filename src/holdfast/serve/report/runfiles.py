"""What lies in a run directory beside its event log: who and what, step times, last words, dumps, profiles.

Whatever is missing or broken is left out and told; only a folder without an event log is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast.diagnose.case import Case
from holdfast.diagnose.hangs import Hang, diagnose_hang
from holdfast.errors import InputError
from holdfast.guard.jobprofile import read_profile, to_case
from holdfast.observe.eventlog import EventLogContent, read_run
from holdfast.observe.flight import read_dumps
from holdfast.telemetry import Summary
from holdfast.values import Death, Record, WorkerDied

LOG_BYTES = 16_384
"""Read of a worker's log, from its end."""
LOG_LINES = 40
MOST_DEATHS = 24
"""Whose last words are looked for: in a large job one death takes all others with it."""
LARGEST_SUMMARIES = 64 << 20
"""Bytes from which on rows are left out."""
_LARGEST_RUN_JSON = 8 << 20
_SUMMARY = msgspec.json.Decoder(Summary)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One of ``run.json``."""

    value: str | int | float | bool | list[str] | None = None
    origin: str = "default"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How the workers were started."""

    min_nodes: int = 0
    max_nodes: int = 0
    nproc_per_node: int = 0
    max_restarts: int = 0
    command: list[str] = []


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """``run.json``."""

    run_id: str = ""
    argv: list[str] = []
    started_at: str = ""
    host: str = ""
    launcher_pid: int = 0
    settings: dict[str, Setting] = {}
    launch: Launch = Launch()
    versions: dict[str, str] = {}


_RUN_FILE = msgspec.json.Decoder(RunFile)


class LastWords(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker that died has left."""

    attempt: int
    death: Death
    traceback: list[str] = []
    log: str = ""
    """Within the run directory; empty: there is none."""
    lines: list[str] = []
    """The last ones of it."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """All ranks profiled over the same steps."""

    folder: str
    case: Case


class RunFiles(msgspec.Struct, frozen=True, kw_only=True):
    """All that could be read, and why the rest could not."""

    folder: Path
    log: EventLogContent
    run: RunFile | None = None
    rows: list[Summary] = []
    words: list[LastWords] = []
    profiles: list[Profile] = []
    hang: Hang | None = None
    unread: list[str] = []
    """Sentences."""


def read_files(folder: Path) -> RunFiles:
    """Read a run directory; InputError if it is none."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, expected a run directory")
    for path in (folder / "run.json", folder / "summaries.jsonl", *sorted(folder.glob("events*.jsonl"))):
        if path.exists() and not path.is_file():  # To read from a pipe could take for ever.
            raise InputError(f"{path}: no regular file, expected one that holdfast wrote")
    log = read_run(folder)
    unread: list[str] = []
    return RunFiles(
        folder=folder,
        log=log,
        run=_read_run_file(folder / "run.json", unread),
        rows=_read_rows(folder / "summaries.jsonl", unread),
        words=list(_read_words(folder, log.records, unread)),
        profiles=list(_read_profiles(folder, unread)),
        hang=_read_hang(folder / "flight_recorder", unread),
        unread=unread,
    )


def _read_run_file(path: Path, unread: list[str]) -> RunFile | None:
    try:
        return _RUN_FILE.decode(path.read_bytes()[:_LARGEST_RUN_JSON])
    except FileNotFoundError:
        unread.append("there is no run.json: command, versions and settings are not known")
    except OSError as error:
        unread.append(f"run.json cannot be read: {error.strerror}")
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        unread.append(f"run.json cannot be read: {error}")
    return None


def _read_rows(path: Path, unread: list[str]) -> list[Summary]:
    """Return the rows; of a very long file every so many, which still show how the run went."""
    rows, broken, cut = [], 0, 0
    try:
        every = 1 + path.stat().st_size // LARGEST_SUMMARIES
        with path.open("rb") as stream:
            for number, line in enumerate(stream):
                cut += not line.endswith(b"\n")
                if number % every == 0 and line.endswith(b"\n") and line.strip():
                    row = _decode_row(line)
                    rows += [row] if row is not None else []
                    broken += row is None
    except FileNotFoundError:
        unread.append("there is no summaries.jsonl: step times are not known")
        return []
    except OSError as error:
        unread.append(f"summaries.jsonl cannot be read: {error.strerror}")
        return []
    if broken or cut:
        unread.append(f"summaries.jsonl: {broken} broken lines, {cut} cut")
    if every > 1:
        unread.append(f"summaries.jsonl is long: one row in {every} was read")
    return rows


def _decode_row(line: bytes) -> Summary | None:
    try:
        return _SUMMARY.decode(line)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _read_words(folder: Path, records: Sequence[Record], unread: list[str]) -> Iterator[LastWords]:
    deaths = [
        (each.stamp.attempt, each.event.death) for each in records if isinstance(each.event, WorkerDied)
    ]
    deaths.sort(key=lambda each: each[0])  # Nodes are read one after the other.
    if len(deaths) > MOST_DEATHS:
        unread.append(f"last words of {MOST_DEATHS} of {len(deaths)} workers that died are shown")
    for attempt, death in deaths[:MOST_DEATHS]:
        name = f"attempt_{attempt}/rank_{death.rank}"
        log = folder / "logs" / f"{name}.log"
        lines = _tail(log, unread)
        traceback = death.traceback or _callstack(folder / "errors" / f"{name}.json")
        yield LastWords(
            attempt=attempt,
            death=death,
            traceback=traceback.splitlines()[-LOG_LINES:],
            log=str(log.relative_to(folder)) if lines else "",
            lines=lines,
        )


def _tail(path: Path, unread: list[str]) -> list[str]:
    """Return the last lines of a file; none where there is no such file."""
    try:
        if not path.is_file():  # Reading a pipe might never end.
            return []
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - LOG_BYTES))
            lines = stream.read(LOG_BYTES).decode(errors="replace").splitlines()
    except OSError as error:
        unread.append(f"{path.parent.name}/{path.name} cannot be read: {error.strerror}")
        return []
    return lines[1 if size > LOG_BYTES else 0 :][-LOG_LINES:]


def _callstack(path: Path) -> str:
    """Return the traceback of an error file in torchelastic's format; empty: there is none."""
    try:
        found = msgspec.json.decode(path.read_bytes()[:_LARGEST_RUN_JSON])
        return str(found["message"]["extraInfo"]["py_callstack"])
    except (OSError, msgspec.DecodeError, RecursionError, ValueError, KeyError, TypeError):
        return ""


def _read_profiles(folder: Path, unread: list[str]) -> Iterator[Profile]:
    for path in sorted(folder.glob("profiles/*/job.json"), key=lambda each: each.stat().st_mtime):
        name = str(path.parent.relative_to(folder))
        try:
            yield Profile(folder=name, case=to_case(read_profile(path)))
        except (InputError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            unread.append(f"{name}: the profile cannot be read: {error}")


def _read_hang(folder: Path, unread: list[str]) -> Hang | None:
    try:
        if not folder.is_dir() or not any(folder.iterdir()):
            return None
        return diagnose_hang(read_dumps([folder]))
    except (InputError, OSError) as error:
        unread.append(f"the Flight Recorder's dumps cannot be read: {error}")
        return None
