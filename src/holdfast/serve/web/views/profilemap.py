"""The heat map of a profile that lies on this machine, as ``holdfast diagnose`` draws it.

Only profiles inside the folder of runs that the server was told to follow are read: what a guard says about
folders is not believed.
"""

from __future__ import annotations

import re
import stat
from functools import lru_cache
from pathlib import Path

from markupsafe import Markup

from holdfast.errors import InputError
from holdfast.guard.jobprofile import read_profile, to_case
from holdfast.serve.rankmaps import draw_functions
from holdfast.serve.ranktable import tabulate

MOST_BYTES = 32 << 20
"""Of a profile that is read; a larger one would hold up the page."""
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")


def find_profile(runs: Path | None, name: str, order: str) -> Path | None:
    """Return where the profile of a run lies; None where it is not in the folder, or too large."""
    if runs is None or not (_PLAIN.fullmatch(name) and _PLAIN.fullmatch(order)):
        return None
    place = runs / name / "profiles" / order / "job.json"
    try:
        found = place.lstat()
        is_inside = place.resolve() == runs.resolve() / name / "profiles" / order / "job.json"
    except OSError:
        return None
    return place if stat.S_ISREG(found.st_mode) and is_inside and found.st_size <= MOST_BYTES else None


def draw_profile(place: Path) -> Markup:
    """Return the map of functions by ranks; nothing where the file is no profile."""
    try:
        return _draw(place, place.stat().st_mtime_ns)
    except (OSError, InputError):
        return Markup("")
    except (ValueError, LookupError, ArithmeticError, RecursionError):  # Its parts do not fit together.
        return Markup("")


@lru_cache(maxsize=16)
def _draw(place: Path, changed_ns: int) -> Markup:
    case = to_case(read_profile(place))
    table = tabulate(case)
    return Markup(draw_functions(case, table)) if table.ranks else Markup("")
