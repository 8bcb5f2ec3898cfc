"""Notices that a job has gone silent, gathers stacks and dumps of all ranks, and tells who holds it up."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.detect.counters import Sample
from holdfast.detect.silence import Sign, Silence, SilenceDetector
from holdfast.diagnose.hangs import diagnose_hang
from holdfast.diagnose.silences import Quiet, name_silent
from holdfast.diagnose.telling import tell_suspect
from holdfast.errors import InputError
from holdfast.findings import Suspect
from holdfast.guard.questions import Questions
from holdfast.guard.say import Say
from holdfast.observe.flight import read_dumps
from holdfast.values import AnyEvent, InCall, JobHung, Lines, Step


class SilenceWatch:
    """Looks once a second; workers with a status page have a watchdog of their own."""

    def __init__(self, folder: Path, *, dumps: Path, tell: Callable[[AnyEvent], None], say: Say) -> None:
        self._dumps = dumps
        self._tell = tell
        self._say = say
        self._detector = SilenceDetector()
        self._questions = Questions(folder)
        self._silence: Silence | None = None
        self._attempt = 0

    def look(self, steps: Sequence[Step], calls: Mapping[int, InCall], sample: Sample) -> None:
        """Take in what happened, and what all ranks are in the midst of."""
        for step in steps:
            if step.attempt != self._attempt:
                self._attempt, self._detector, self._silence = step.attempt, SilenceDetector(), None
            self._detector.learn(step.duration_s)
        signs = {
            rank: Sign(marks=(call.calls, call.steps), cpu_s=_cpu_s(sample, rank))
            for rank, call in calls.items()
        }
        silence = self._detector.see(sample.at_s, signs)
        if silence is not None:
            self._silence = silence
            self._ask(list(calls), sample.at_s)
        elif steps:
            self._silence = None
        if self._silence is not None and self._questions.is_over(sample.at_s):
            self._name(self._silence, calls, sample)
            self._silence = None

    def _ask(self, ranks: Sequence[int], now_s: float) -> None:
        with contextlib.suppress(OSError):
            self._dumps.mkdir(parents=True, exist_ok=True)
        self._questions.ask(ranks, now_s=now_s, duration_s=0.0, dumps=str(self._dumps))

    def _name(self, silence: Silence, calls: Mapping[int, InCall], sample: Sample) -> None:
        answers = self._questions.answers()
        suspects = self._judge(calls, sample, answers)
        self._tell(
            JobHung(
                lasted_s=round(silence.lasted_s, 3),
                limit_s=round(silence.limit_s, 3),
                suspects=suspects,
                stacks={str(rank): lines.stack for rank, lines in sorted(answers.items())},
                dumps=str(self._dumps) if self._dumps.is_dir() and any(self._dumps.iterdir()) else None,
            )
        )
        self._say.line(f"no step and no call for {silence.lasted_s:.0f} s: the job hangs")
        for suspect in suspects:
            self._say.line(tell_suspect(suspect))
            for sentence in suspect.evidence:
                self._say.line(f"  {sentence}")

    def _judge(
        self, calls: Mapping[int, InCall], sample: Sample, answers: Mapping[int, Lines]
    ) -> list[Suspect]:
        quiet = {
            rank: Quiet(
                rank=rank,
                state=sample.processes[rank].state if rank in sample.processes else None,
                call=call,
                stack=answers[rank].stack if rank in answers else (),
            )
            for rank, call in calls.items()
        }
        found = name_silent(quiet)
        if found and found[0].confidence > 0.95:  # A rank that is dead or stopped explains it all.
            return found
        with contextlib.suppress(InputError):
            dumped = diagnose_hang(read_dumps([self._dumps])).suspects
            if dumped and (not found or dumped[0].confidence >= found[0].confidence):
                return dumped
        return found


def _cpu_s(sample: Sample, rank: int) -> float:
    counters = sample.processes.get(rank)
    return counters.cpu_s if counters is not None else 0.0
