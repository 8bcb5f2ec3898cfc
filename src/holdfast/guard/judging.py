"""Judges a job by what its nodes tell: is it slow, does it hang, and by whose fault?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from holdfast.guard.batches import Batch
from holdfast.guard.inspector import Inspector
from holdfast.guard.probing import Precheck, Probing
from holdfast.guard.say import Say
from holdfast.guard.silence import SilenceWatch
from holdfast.telemetry import Ask
from holdfast.values import AnyEvent

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


class Judge:
    """Takes in the batches of all nodes, as they come."""

    def __init__(self, bench: Bench, ask: Callable[[Ask], None]) -> None:
        self._inspector = Inspector(tell=bench.tell, say=bench.say, ask=ask, probing=bench.probing)
        self._silence = SilenceWatch(dumps=bench.dumps, tell=bench.tell, say=bench.say, ask=ask)
        self._precheck = bench.precheck
        self._last: dict[int, tuple[float, Batch]] = {}
        """By node, with when it came and without what happened once only."""

    def judge(self, batches: Sequence[Batch], now_s: float, *, has_watchdog: bool) -> None:
        """Look at a second; silence is the watchdog's business where there is one."""
        self._inspector.inspect(batches, now_s)
        if self._precheck is not None:
            self._inspector.take_precheck(self._precheck)
        present = self._with_the_late(batches, now_s)
        if not has_watchdog:
            self._silence.look(present, now_s)

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
            self._last[batch.node] = (now_s, msgspec.structs.replace(batch, steps=[], answers=[]))
        return [*late, *batches]
