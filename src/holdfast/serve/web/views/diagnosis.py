"""Profiles of all ranks in words: who stands out, and where the whole of it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from holdfast.diagnose.telling import tell_profile, tell_suspect
from holdfast.findings import Suspect
from holdfast.serve.web.views.profilemap import draw_profile, find_profile
from holdfast.serve.web.views.words import say_times
from holdfast.values import Profiled, Record


class Found(NamedTuple):
    """A suspect as a row."""

    words: str
    evidence: tuple[str, ...]
    times: str
    sure: str


class Profile(NamedTuple):
    """A profile as it is shown."""

    at: str
    first_step: int
    last_step: int
    words: str
    suspects: tuple[Found, ...]
    folder: str
    map: Markup = Markup("")


def show_profile(record: Record, *, runs: Path | None, name: str) -> Profile:
    """Return what a profile came to, with its map where it lies in the folder of runs."""
    event = record.event
    assert isinstance(event, Profiled)
    place = find_profile(runs, name, event.order)
    return Profile(
        at=record.stamp.at,
        first_step=event.first_step,
        last_step=event.last_step,
        words=tell_profile(event),
        suspects=tuple(map(_row, event.suspects)),
        folder=event.folder or "",
        map=draw_profile(place) if place is not None else Markup(""),
    )


def _row(suspect: Suspect) -> Found:
    return Found(
        words=tell_suspect(suspect).rpartition(" (")[0],
        evidence=tuple(suspect.evidence),
        times=say_times(suspect.slowdown) if suspect.slowdown is not None else "",
        sure=f"{suspect.confidence:.0%}",
    )
