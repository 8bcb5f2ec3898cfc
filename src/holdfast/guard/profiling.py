"""Profiles of the whole job, ordered by the controller: over the same steps on all ranks, one at a time.

Because the job got slow, because a person asked (``holdfast profile``), or because it is time again.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from holdfast.diagnose.telling import tell_profile, tell_suspect
from holdfast.guard.batches import Batch
from holdfast.guard.jobprofile import Errands, Gathering, JobProfile, Progress, Wish, to_case, wish_path
from holdfast.guard.profileshere import PATIENCE_S
from holdfast.guard.say import Say
from holdfast.job.files import replace_file
from holdfast.telemetry import ProfileOrder
from holdfast.values import AnyEvent, Profiled

_WISH = msgspec.json.Decoder(Wish)
LENGTH_S = 5.0
"""Of a profile, where nobody has said how many steps."""
LEAST_STEPS, MOST_STEPS = 5, 1000
_AHEAD_S = 3.0
"""So far ahead is the first step, at least: ranks hear of an order within a second or two."""
_AHEAD_STEPS = 2
_REST_S = 600.0
"""Between two profiles because of a slowdown."""


class ProfileHabits(msgspec.Struct, kw_only=True):
    """When a job is profiled without a person asking, which may change, and where profiles are kept."""

    folder: Path
    """In the run directory."""
    when_slow: bool = False
    every_steps: int = 0
    """0: never."""


class Profiling:
    """One profile at a time."""

    def __init__(
        self, habits: ProfileHabits, errands: Errands, *, tell: Callable[[AnyEvent], None], say: Say
    ) -> None:
        self._habits = habits
        self._folder = habits.folder
        self._errands = errands
        self._tell = tell
        self._say = say
        self._now: Gathering | None = None
        self._wanted: str | None = None
        self._rested_s = -math.inf
        self._last_step = 0
        self._heeded = _version(wish_path(habits.folder.parent))
        """A request that lay there before us is not for us."""

    def want(self, why: str, now_s: float) -> None:
        """Have the job profiled soon, unless it was lately."""
        if self._habits.when_slow and self._now is None and now_s - self._rested_s > _REST_S:
            self._wanted = why

    def look(self, batches: Sequence[Batch], progress: Progress | None, now_s: float) -> None:
        """Take in what has come, and begin what is due."""
        if self._now is not None:
            self._now.take(batches, now_s)
            if self._now.is_over(now_s):
                self._conclude(self._now, now_s)
        elif progress is not None:
            self._begin_what_is_due(progress, now_s)

    def _begin_what_is_due(self, progress: Progress, now_s: float) -> None:
        wish = self._read_wish()
        if wish is not None:
            self._begin(progress, now_s, "a person asked", wish)
        elif self._wanted is not None:
            why, self._wanted, self._rested_s = self._wanted, None, now_s
            self._begin(progress, now_s, why)
        elif self._habits.every_steps and progress.step - self._last_step >= self._habits.every_steps:
            self._begin(progress, now_s, f"every {self._habits.every_steps} steps")

    def _read_wish(self) -> Wish | None:
        path = wish_path(self._folder.parent)
        version = _version(path)
        if version is None or version == self._heeded:
            return None
        self._heeded = version
        with contextlib.suppress(OSError, msgspec.MsgspecError):  # What cannot be read is no request.
            return _WISH.decode(path.read_bytes())
        return None

    def _begin(self, progress: Progress, now_s: float, why: str, wish: Wish | None = None) -> None:
        step_s = max(progress.step_s, 1e-3)
        steps = wish.steps if wish is not None else None
        length = min(MOST_STEPS, steps or max(LEAST_STEPS, math.ceil(LENGTH_S / step_s)))
        first = progress.step + _AHEAD_STEPS + math.ceil(_AHEAD_S / step_s)
        try:
            made = ProfileOrder(
                id=wish.id if wish is not None else secrets.token_hex(4),
                ranks=progress.ranks,
                first_step=first,
                last_step=first + length - 1,
                folder=str(self._folder),
            )
        except ValueError as error:  # A request for what makes no sense.
            self._say.line(f"cannot profile: {error}")
            return
        self._last_step = made.last_step
        patience_s = PATIENCE_S + 2 * length * step_s
        self._now = Gathering(made, why, progress, self._errands, until_s=now_s + patience_s)
        self._say.line(f"profiling all ranks over steps {made.first_step} to {made.last_step} ({why})")
        self._errands.order(made)

    def _conclude(self, gathered: Gathering, now_s: float) -> None:
        self._now = None
        self._rested_s = now_s
        profile = gathered.profile()
        folder = self._save(profile)
        verdict = to_case(profile).verdict
        event = Profiled(
            order=profile.order.id,
            why=profile.why,
            first_step=profile.order.first_step,
            last_step=profile.order.last_step,
            suspects=verdict.suspects,
            victims=verdict.victims,
            missing=sorted(set(profile.order.ranks) - {each.rank for each in profile.patterns}),
            blocked_s=max((each.blocked_s for each in profile.results), default=0.0),
            folder=folder,
        )
        self._tell(event)
        self._say.line(tell_profile(event))
        for suspect in event.suspects:
            self._say.line(tell_suspect(suspect))
            for sentence in suspect.evidence:
                self._say.line(f"  {sentence}")
        for result in profile.results:
            if result.outcome != "done":
                self._say.line(f"  rank {result.rank} was not profiled: {result.error}")

    def _save(self, profile: JobProfile) -> str | None:
        folder = self._folder / profile.order.id
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / "job.json", msgspec.json.encode(profile))
        except OSError as error:
            self._say.cannot_write(folder, error)
            return None
        return str(folder)


def _version(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
