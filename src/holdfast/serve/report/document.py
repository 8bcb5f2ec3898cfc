"""A run directory into a report: read, told, and written in the form that a file's name asks for."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.serve.report.compose import compose, count_incidents, tell_state, title_of
from holdfast.serve.report.gaps import find_gaps
from holdfast.serve.report.page import MARK as HTML_MARK
from holdfast.serve.report.page import to_html
from holdfast.serve.report.plaintext import MARK as MARKDOWN_MARK
from holdfast.serve.report.plaintext import to_markdown
from holdfast.serve.report.runfiles import RunFile, read_files
from holdfast.serve.report.tale import Tale, make_tale
from holdfast.serve.report.wording import tell_gpu_h, tell_time

ENDINGS = (".html", ".md")
SCHEMA = 1
"""Of the JSON; raised when a reader of the old one would misread."""
_HEAD_BYTES = 4096


def read_tale(folder: Path) -> Tale:
    """Return all that a run directory tells; InputError if it is none."""
    files = read_files(folder)
    return make_tale(files, is_alive=_is_alive(files.run))


def render(tale: Tale, ending: str) -> str:
    """Return the report as ``.html`` or ``.md``."""
    title, blocks = title_of(tale), compose(tale)
    return to_html(title, blocks) if ending == ".html" else to_markdown(title, blocks)


def is_report(path: Path) -> bool:
    """Say whether a file is a report, which may be written anew."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES).decode(errors="replace")
    except OSError:
        return False
    return HTML_MARK in head or head.startswith(MARKDOWN_MARK)


def summarize(tale: Tale) -> Iterator[str]:
    """Yield five lines: the run, its incidents, what they cost, its ETTR, what is not known."""
    view, times = tale.view, tale.times
    yield f"{tale.name}: {tell_state(tale)}"
    yield count_incidents(view.incidents)
    lost_s, paid_s, saved_s = (
        sum(getattr(each, name) for each in view.incidents) for name in ("lost_s", "paid_s", "saved_s")
    )
    lost, saved = tell_gpu_h(view.bill.lost_gpu_h), tell_gpu_h(view.bill.saved_gpu_h)
    paid = f", {tell_time(paid_s)} of them for what was done" if paid_s else ""
    yield f"lost {tell_time(lost_s)} ({lost}){paid}; saved {tell_time(saved_s)} ({saved})"
    if times.ettr is None:
        yield "ETTR not known: nobody told when it started"
    else:
        parts = [f"{tell_time(times.startup_s)} start-up", f"{tell_time(times.still_s)} stood still"]
        where = ", ".join([*parts, f"{tell_time(times.slow_s)} lost to slow steps"])
        yield f"ETTR {times.ettr:.1%} at most: of {tell_time(times.whole_s)}, {where}"
    gaps = find_gaps(tale)
    more = f" (and {len(gaps) - 1} more)" if len(gaps) > 1 else ""
    yield f"not known: {gaps[0]}{more}" if gaps else "nothing is missing from its files"


def to_json(tale: Tale) -> bytes:
    """Return one document: the run as it is seen, what it cost, and what each source holds."""
    files = tale.files
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "name": tale.name,
        "run": tale.view,
        "times": {**msgspec.to_builtins(tale.times), "ettr": tale.times.ettr},
        "not_known": find_gaps(tale),
        "sources": {
            "run_json": None
            if files.run is None
            else {"host": files.run.host, "versions": files.run.versions},
            "events": {
                "records": len(files.log.records),
                "cut": files.log.cut,
                "broken": files.log.broken,
            },
            "summaries": {"rows": len(files.rows)},
            "profiles": [{"folder": each.folder, "verdict": each.case.verdict} for each in files.profiles],
            "flight_recorder": files.hang,
            "last_words": files.words,
        },
    }
    return msgspec.json.encode(document)


def _is_alive(run: RunFile | None) -> bool | None:
    """Say whether the launcher lives; None: it is on another machine, or not known."""
    if run is None or run.launcher_pid <= 0 or run.host != socket.gethostname():
        return None
    try:
        os.kill(run.launcher_pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # It is another user's.
        pass
    return True
