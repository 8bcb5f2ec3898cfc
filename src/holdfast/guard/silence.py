"""Notices that a job has gone silent, gathers stacks and dumps of all ranks, and tells who holds it up."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.detect.silence import Sign, Silence, SilenceDetector
from holdfast.diagnose.hangs import diagnose_hang
from holdfast.diagnose.silences import Quiet, add_places, name_silent
from holdfast.diagnose.telling import tell_suspect
from holdfast.errors import InputError
from holdfast.findings import Suspect
from holdfast.guard.batches import Batch
from holdfast.guard.inquiry import Inquiry
from holdfast.guard.say import Say
from holdfast.observe.flight import read_dumps
from holdfast.telemetry import Ask
from holdfast.values import AnyEvent, JobHung


class SilenceWatch:
    """Looks once a second; workers with a status page have a watchdog of their own."""

    def __init__(
        self,
        *,
        dumps: Path,
        tell: Callable[[AnyEvent], None],
        say: Say,
        ask: Callable[[Ask], None],
    ) -> None:
        self._dumps = dumps
        self._tell = tell
        self._say = say
        self._detector = SilenceDetector()
        self._inquiry = Inquiry(ask)
        self._silence: Silence | None = None
        self._attempt = 0

    def look(self, batches: Sequence[Batch], now_s: float) -> None:
        """Take in what happened, and what all ranks are in the midst of."""
        self._inquiry.take(batches)
        for step in (step for batch in batches for step in batch.steps):
            if step.attempt < self._attempt:
                continue
            if step.attempt > self._attempt:
                self._attempt, self._detector, self._silence = step.attempt, SilenceDetector(), None
            self._detector.learn(step.duration_s)
            self._silence = None
        if not batches:
            return
        ranks = {rank: _quiet(batch, rank, self._inquiry) for batch in batches for rank in batch.calls}
        silence = self._detector.see(now_s, _signs(batches))
        if silence is not None:
            self._silence = silence
            self._ask(sorted(ranks), now_s)
        if self._silence is not None and self._inquiry.is_over(now_s):
            self._name(self._silence, ranks)
            self._silence = None

    def _ask(self, ranks: Sequence[int], now_s: float) -> None:
        with contextlib.suppress(OSError):
            self._dumps.mkdir(parents=True, exist_ok=True)
        self._inquiry.ask(ranks, now_s=now_s, duration_s=0.0, dumps=str(self._dumps))

    def _name(self, silence: Silence, ranks: Mapping[int, Quiet]) -> None:
        suspects = self._judge(ranks)
        self._tell(
            JobHung(
                lasted_s=round(silence.lasted_s, 3),
                limit_s=round(silence.limit_s, 3),
                suspects=suspects,
                stacks={str(rank): list(quiet.stack) for rank, quiet in sorted(ranks.items()) if quiet.stack},
                dumps=str(self._dumps) if self._dumps.is_dir() and any(self._dumps.iterdir()) else None,
            )
        )
        self._say.line(f"no step and no call for {silence.lasted_s:.0f} s: the job hangs")
        for suspect in suspects:
            self._say.line(tell_suspect(suspect))
            for sentence in suspect.evidence:
                self._say.line(f"  {sentence}")

    def _judge(self, ranks: Mapping[int, Quiet]) -> list[Suspect]:
        found = name_silent(ranks)
        if found and found[0].confidence > 0.95:  # A rank that is dead or stopped explains it all.
            return found
        with contextlib.suppress(InputError):
            dumped = diagnose_hang(read_dumps([self._dumps])).suspects
            if dumped and (not found or dumped[0].confidence >= found[0].confidence):
                return [add_places(suspect, ranks) for suspect in dumped]
        return found


def _signs(batches: Sequence[Batch]) -> dict[int, Sign]:
    return {
        rank: Sign(marks=(call.calls, call.steps), cpu_s=counters.cpu_s if counters is not None else 0.0)
        for batch in batches
        for rank, call in batch.calls.items()
        for counters in [batch.sample.processes.get(rank)]
    }


def _quiet(batch: Batch, rank: int, inquiry: Inquiry) -> Quiet:
    counters = batch.sample.processes.get(rank)
    answer = inquiry.answers.get(rank)
    return Quiet(
        rank=rank,
        state=counters.state if counters is not None else None,
        call=batch.calls[rank],
        stack=answer.stack if answer is not None else (),
    )
