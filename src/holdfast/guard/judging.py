"""Judges a job by what its nodes tell: is it slow, does it hang, and by whose fault?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from holdfast.guard.batches import Batch
from holdfast.guard.inspector import Inspector
from holdfast.guard.jobprofile import Errands
from holdfast.guard.mitigating import Mitigation
from holdfast.guard.probing import Precheck, Probing
from holdfast.guard.profiling import ProfileHabits, Profiling
from holdfast.guard.say import Say
from holdfast.guard.silence import SilenceWatch
from holdfast.telemetry import Ask
from holdfast.values import AnyEvent, JobRelieved, SuspectsNamed

_KEPT_S = 60.0
"""How long the last word of a node stands when no more comes."""


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a judge tells what it found, and where dumps go."""

    dumps: Path
    tell: Callable[[AnyEvent], None]
    say: Say
    probing: Probing | None = None
    """Where the user allowed probes."""
    precheck: Precheck | None = None
    profiles: ProfileHabits | None = None
    """Where profiles may be made."""
    mitigation: Mitigation | None = None
    """Where something can be done about what was found."""


class Judge:
    """Takes in the batches of all nodes, as they come."""

    def __init__(self, bench: Bench, ask: Callable[[Ask], None], errands: Errands | None = None) -> None:
        self._tell_on = bench.tell
        self._inspector = Inspector(tell=self._tell, say=bench.say, ask=ask, probing=bench.probing)
        self._profiling: Profiling | None = None
        if bench.profiles is not None and errands is not None:
            self._profiling = Profiling(bench.profiles, errands, tell=bench.tell, say=bench.say)
        self._now_s = 0.0
        self._silence = SilenceWatch(dumps=bench.dumps, tell=bench.tell, say=bench.say, ask=ask)
        self._precheck = bench.precheck
        self._mitigation = bench.mitigation
        self._last: dict[int, tuple[float, Batch]] = {}
        """By node, with when it came and without what happened once only."""

    def judge(self, batches: Sequence[Batch], now_s: float, *, has_watchdog: bool) -> None:
        """Look at a second; silence is the watchdog's business where there is one."""
        self._now_s = now_s
        self._inspector.inspect(batches, now_s)
        if self._profiling is not None:
            self._profiling.look(batches, self._inspector.progress(), now_s)
        if self._mitigation is not None:
            self._mitigation.look(self._inspector.lookout, now_s)
        if self._precheck is not None:
            self._inspector.take_precheck(self._precheck)
        present = self._with_the_late(batches, now_s)
        if not has_watchdog:
            self._silence.look(present, now_s)

    def _tell(self, event: AnyEvent) -> None:
        """Tell what was found; a slowdown is looked into further where that is wanted."""
        self._tell_on(event)
        if isinstance(event, SuspectsNamed) and event.since_step > 0 and self._profiling is not None:
            self._profiling.want(f"slow since step {event.since_step}", self._now_s)
        if self._mitigation is not None:
            self._pass_on(event, self._mitigation)

    def _pass_on(self, event: AnyEvent, mitigation: Mitigation) -> None:
        """Let those who act know what was found."""
        trouble = self._inspector.lookout.trouble
        if isinstance(event, SuspectsNamed) and event.since_step > 0 and trouble is not None:
            mitigation.blame(event.suspects, trouble)
        elif isinstance(event, JobRelieved) and not event.change.is_slow:
            mitigation.relieve()

    def _with_the_late(self, batches: Sequence[Batch], now_s: float) -> list[Batch]:
        """Return the batches, and before them the last one of each node that has sent none this time.

        They travel, so that a look may have none of a node and the next one two. A rank that is seen every
        other time would look as if it came and went.
        """
        heard = {batch.node for batch in batches}
        late = [
            last
            for node, (came_s, last) in sorted(self._last.items())
            if node not in heard and now_s - came_s < _KEPT_S
        ]
        for batch in batches:
            self._last[batch.node] = (now_s, _without_news(batch))
        return [*late, *batches]


def _without_news(batch: Batch) -> Batch:
    return msgspec.structs.replace(batch, steps=[], answers=[], profile=None, functions={})
