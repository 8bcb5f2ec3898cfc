"""Turns a hang into a death: looks at the workers' status pages, and kills who stands still.

Who that is, ``detect.hang`` says. The survivors of a death go on by themselves; those of a hang would wait
for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from holdfast.detect.clocks import Clocks, Sight, Spent
from holdfast.detect.hang import HISTORY, STOPPED, Hung, Limits, Seen, find_hung, find_suspects, limits_of
from holdfast.guard.pages import Page, Pages
from holdfast.guard.schedules import Schedules
from holdfast.telemetry import Phase, Status, Step
from holdfast.values import AnyEvent, WorkerHung

EVERY_S = 0.05
_Place = tuple[int, int, int, int]


class _Pace(msgspec.Struct):
    """What is known of a rank's steps."""

    attempt: int
    durations_s: deque[float]
    limits: Limits = Limits()


class Watchdog:
    """Looks at all workers of a node; ``refresh`` it about once a second."""

    def __init__(
        self,
        folder: Path,
        *,
        tell: Callable[[AnyEvent], None],
        workers: Callable[[], Collection[int]],
        kills: bool = True,
    ) -> None:
        self._pages = Pages(folder, workers)
        self._schedules = Schedules(folder)
        self._clocks = Clocks(EVERY_S)
        self._tell = tell
        self.kills = kills
        """May be changed at any time."""
        self._paces: dict[int, _Pace] = {}
        self._suspects: set[int] = set()
        self._told: dict[int, _Place | None] = {}
        """Per process, where it was when it was told of; None: another guard told it."""

    @property
    def is_needed(self) -> bool:
        """Say whether there is anybody to look at."""
        return len(self._pages) > 0

    def follow_on(self, events: Iterable[AnyEvent]) -> None:
        """Take over from a guard that died: what it has told is not told again, but may have to be done."""
        self._told |= {event.pid: None for event in events if isinstance(event, WorkerHung)}

    def learn(self, steps: Iterable[Step]) -> None:
        """Take in steps that were finished, oldest first."""
        for step in steps:
            pace = self._paces.get(step.rank)
            if pace is None or pace.attempt != step.attempt:
                pace = self._paces[step.rank] = _Pace(step.attempt, deque(maxlen=HISTORY))
            if step.duration_s > 0:  # The first one has no duration.
                pace.durations_s.append(step.duration_s)
                pace.limits = limits_of(list(pace.durations_s))

    def refresh(self) -> None:
        """Find out which workers and which schedules there are."""
        self._pages.refresh()
        self._schedules.refresh()

    def look(self, now_s: float) -> None:
        """Look at every worker once, and do what has to be done."""
        pages = {page.rank: page for page in self._pages}
        sights = [sight for page in pages.values() if (sight := self._see(page)) is not None]
        spent = self._clocks.see(now_s, sights)
        seen = [self._join(pages[sight.status.rank], sight, spent[sight.status.rank]) for sight in sights]
        waiting = {each.status.generation for each in seen if each.status.phase == Phase.RECEIVE}
        makers = {generation: self._schedules.makers(generation) for generation in waiting}
        statuses = {sight.status.rank: sight.status for sight in sights}
        hung = [each for each in find_hung(seen, makers) if each.rank in self._suspects]
        self._suspects = find_suspects(seen, makers)
        for each in hung:
            self._convict(each, pages[each.rank], statuses[each.rank])

    def _see(self, page: Page) -> Sight | None:
        state = page.state()
        if state is None:
            return None
        try:
            status = page.read()
        except ValueError:  # Somebody wrote into it who should not.
            return None
        return Sight(
            status=status,
            state=state,
            runs=page.runs() if state == STOPPED else 0,
            starved_s=self._starved_s(page),
        )

    def _starved_s(self, page: Page) -> float:
        """Ask for it only where it may matter: the kernel is asked about every thread of the process."""
        if page.rank in self._suspects:
            return page.starved_s()
        page.forget_starving()
        return 0.0

    def _join(self, page: Page, sight: Sight, spent: Spent) -> Seen:
        return Seen(
            status=sight.status,
            stage=sight.status.seat % page.pp,
            state=sight.state,
            waited_s=spent.waited_s,
            stopped_s=spent.stopped_s,
            limits=self._limits(page.rank),
        )

    def _limits(self, rank: int) -> Limits:
        pace = self._paces.get(rank)
        return pace.limits if pace is not None else Limits()

    def _convict(self, hung: Hung, page: Page, status: Status) -> None:
        told = self._told.get(page.pid, ())
        self._told[page.pid] = status.place
        if told is not None and told != status.place:
            self._tell(
                WorkerHung(
                    rank=hung.rank,
                    pid=page.pid,
                    phase=status.phase.name.lower(),
                    op=self._schedules.op(status),
                    waited_s=round(hung.waited_s, 3),
                    evidence=hung.evidence,
                    is_killed=self.kills,
                )
            )
        if self.kills:
            page.kill()
            # A death changes what everybody waits for.
            self._clocks.restart()
