"""Deaths and hangs as incidents, in whichever order launchers, guards and survivors tell of them.

Workers that die together are one incident, until training goes on; where it went on without them, until they
are back or others have their places. Survivors may go on before a launcher sees who died, and a node that is
lost tells nothing at all: then it is they who tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.diagnose.telling import tell_suspect
from holdfast.incidents.draft import Draft, open_draft
from holdfast.incidents.order import seconds_between
from holdfast.incidents.values import SILENT, IncidentKind, Stage
from holdfast.values import JobHung, Record, Regrouped, WorkerDied, WorkerHung, WorkerReturned

RESTARTED = "training goes on after a restart"


class Standstills:
    """Who is missing, and whether anybody gets on."""

    def __init__(self, keep: Callable[[Draft], None]) -> None:
        self._keep = keep
        self.deaths: Draft | None = None
        """Those after which nobody has gone on yet."""
        self.hang: Draft | None = None
        self.missing: list[Draft] = []
        """Deaths after which the others went on."""
        self._hang_step = -1
        self.usual_s: float | None = None
        """What a healthy step takes, where a detector has told."""
        self._seen: list[tuple[int, str]] = []
        """The first step that was seen while all were there, and the last, with their times."""
        self._places: dict[int, int] = {}
        """By rank, the last one that it held."""

    def add(self, record: Record, step: int) -> None:
        """Take in what happened, with the last step that was seen."""
        match record.event:
            case WorkerDied(death=death):
                self._mourn(record, death.rank, "death")
            case WorkerHung(is_killed=True) as event:
                self._mourn(record, event.rank, "hang", event.waited_s)
            case WorkerHung() as event:
                self._halt(record, step, event.waited_s)
                self._blame([event.rank])
            case JobHung() as event:
                whom = None if not event.suspects else f"no step and no call for {event.lasted_s:.0f} s"
                self._halt(record, step, event.lasted_s, whom)
                self._name(record, event)
            case Regrouped(generation=0) as event:
                self._seen = []
                self.restart(record)
                self._places = _places(event)
            case Regrouped() as event:
                self._go_on(record, event)
                self._places |= _places(event)
            case WorkerReturned(rank=rank):
                for draft in [each for each in self._mourned() if rank in each.ranks]:
                    draft.tell("decided", record)

    # --- hangs --------------------------------------------------------------------------------

    def _halt(self, record: Record, step: int, lasted_s: float, words: str | None = None) -> None:
        if self.hang is None:
            self.hang = open_draft("hang", record, words=words)
            self.hang.before_s = lasted_s
            self._hang_step = step
            self._keep(self.hang)
        else:
            self.hang.tell("detected", record, words)
        self.hang.stand_until(record.stamp.at)

    def _blame(self, ranks: Iterable[int]) -> None:
        if self.hang is not None:
            self.hang.ranks = sorted({*self.hang.ranks, *ranks})

    def _name(self, record: Record, event: JobHung) -> None:
        if self.hang is not None and event.suspects:
            self.hang.suspects = list(event.suspects)
            self._blame(rank for each in event.suspects for rank in each.ranks)
            self.hang.tell("named", record, "; ".join(map(tell_suspect, event.suspects)))

    def move(self, record: Record, words: str | None = None) -> None:
        """Take in a sign that steps are made: nobody hangs any more."""
        if self.hang is not None:
            self.hang.stand_until(record.stamp.at)
            self.hang.close(record, words)
            self.hang = None

    def step(self, step: int, at: str) -> None:
        """Take in a step that was made at some time: a hang that was before it is over."""
        self._follow(step, at)
        hang = self.hang
        # Who reads a log again hears of steps that were made before the hang only after it.
        if hang is not None and step > self._hang_step and seconds_between(hang.opened_at, at) > 0:
            hang.stand_until(at)
            hang.closed_at = at
            words = f"training goes on with step {step}"
            hang.stages.append(Stage(name="closed", at=at, words=words, event_id=""))
            self.hang = None

    def _follow(self, step: int, at: str) -> None:
        """Take in how long steps take: of a healthy job, or of one in which somebody is missing."""
        if self.missing:
            self.missing[0].lag(step, at)
        elif self.deaths is None and self.hang is None:
            self._seen = [*self._seen[:1], (step, at)]

    def _usual_s(self) -> float | None:
        """Return what a step took while all were there."""
        if self.usual_s is not None:
            return self.usual_s
        if len(self._seen) < 2 or self._seen[-1][0] <= self._seen[0][0]:
            return None
        (first, since), (last, until) = self._seen
        return seconds_between(since, until) / (last - first)

    # --- deaths -------------------------------------------------------------------------------

    def _mourn(self, record: Record, rank: int, kind: IncidentKind, waited_s: float = 0.0) -> None:
        """Take in a death, or a further word of one that is known."""
        known = next((each for each in self.missing if rank in each.ranks), self.deaths)
        if known is None:
            known = self.deaths = open_draft(kind, record)
            known.before_s = known.lost_s = waited_s
            self._keep(known)
        else:
            known.tell("detected", record)
        if rank not in known.ranks:
            known.ranks.append(rank)

    def _go_on(self, record: Record, event: Regrouped) -> None:
        """Take in that the others train without those who died, or that somebody is back."""
        self.move(record)
        for rank in event.dead:
            if rank not in event.members and not self._is_known(rank):
                self._tell_gone(record, rank, f"rank {rank} {SILENT}")
        deaths = self.deaths
        # A regrouping that began before a death can still name the one that died.
        if deaths is not None and not set(deaths.ranks) & set(event.members) - set(event.newcomers):
            deaths.stand_until(record.stamp.at)
            deaths.tell("done", record)
            deaths.healthy_s = self._usual_s()
            self.missing.append(deaths)
            self.deaths = None
        for draft in [each for each in self.missing if self._is_whole(each, event)]:
            draft.close(record)
            self.missing.remove(draft)

    def _tell_gone(self, record: Record, rank: int, words: str) -> None:
        if self.deaths is None:
            self.deaths = open_draft("death", record, words=words)
            self._keep(self.deaths)
        else:
            self.deaths.tell("detected", record, words)
        self.deaths.ranks.append(rank)

    def _is_known(self, rank: int) -> bool:
        return any(rank in draft.ranks for draft in self._mourned())

    def _mourned(self) -> list[Draft]:
        return [*self.missing, *([self.deaths] if self.deaths is not None else [])]

    def _is_whole(self, draft: Draft, event: Regrouped) -> bool:
        """Say whether all who died are back, or somebody who is new has their place."""
        taken = {place for rank, place in _places(event).items() if rank in event.newcomers}
        return all(rank in event.members or self._places.get(rank) in taken for rank in draft.ranks)

    def restart(self, record: Record) -> None:
        """Take in a first step, or that all have met: of a later attempt, it ends what stood still before."""
        attempt = record.stamp.attempt
        if self.deaths is not None and attempt > self.deaths.attempt:
            self.deaths.stand_until(record.stamp.at)
            self.deaths.close(record, RESTARTED)
            self.deaths = None
        if self.hang is not None and attempt > self.hang.attempt:
            self.move(record, RESTARTED)

    def end(self, record: Record, *, is_over: bool) -> list[Draft]:
        """Return what ends with an attempt; deaths only do where nothing comes after it."""
        attempt = record.stamp.attempt
        ended = [each for each in self.missing if is_over or each.attempt <= attempt]
        self.missing = [each for each in self.missing if each not in ended]
        for draft in (self.hang, self.deaths if is_over else None):
            if draft is not None and (is_over or draft.attempt <= attempt):
                draft.stand_until(record.stamp.at)
                ended.append(draft)
        self.hang = None if self.hang in ended else self.hang
        self.deaths = None if self.deaths in ended else self.deaths
        return ended


def _places(event: Regrouped) -> dict[int, int]:
    return dict(zip(event.members, event.places or event.members, strict=False))
