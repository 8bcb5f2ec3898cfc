"""Who holds up a job that has gone silent, without dumps: by what each rank is in the midst of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.diagnose.wording import name_ranks
from holdfast.findings import Cause, Suspect
from holdfast.telemetry import InCall

_STOPPED = "Tt"
_GONE = "ZX"
"""Dead, and nobody has asked after it yet."""
_WAITS = (
    "distributed_c10d.py",
    "_engine_run_backward",
    "_functional_collectives.py",
    "reducer",
    "job/mesh.py",
)
"""Where a rank is that waits for others, by its innermost frames."""


class Quiet(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one rank of a silent job."""

    rank: int
    state: str | None
    """The kernel's letter for what it does; None: it is gone."""
    call: InCall | None = None
    stack: Sequence[str] = ()
    """Innermost first; empty: it did not answer."""

    @property
    def is_waiting(self) -> bool:
        """Whether it is in a communication call."""
        if self.call is not None and self.call.since_s is not None:
            return True
        return any(word in frame for frame in self.stack[:4] for word in _WAITS)


def name_silent(ranks: Mapping[int, Quiet]) -> list[Suspect]:
    """Return who holds up the others, surest first; nobody if all of them wait for the same."""
    gone = [rank for rank, quiet in ranks.items() if quiet.state is None or quiet.state in _GONE]
    stopped = [rank for rank, quiet in ranks.items() if quiet.state is not None and quiet.state in _STOPPED]
    silent = [*gone, *stopped]
    absent = [rank for rank, quiet in ranks.items() if rank not in silent and not quiet.is_waiting]
    waiting = sorted(set(ranks) - set(silent) - set(absent))
    found = []
    if gone:
        found.append(_suspect(gone, "death", 0.99, waiting, f"{_are(gone)} no longer there"))
    if stopped:
        found.append(_suspect(stopped, "hang", 0.97, waiting, f"{_are(stopped)} stopped (state T)"))
    if silent:
        return found
    if not absent:
        return _fewest_calls(ranks, waiting)
    # Where somebody waits, it is for those who do not; where nobody does, all hang by themselves.
    confidence = 0.9 if waiting else 0.7
    return [_suspect([rank], "hang", confidence, waiting, _say_place(ranks[rank])) for rank in sorted(absent)]


def add_places(suspect: Suspect, ranks: Mapping[int, Quiet]) -> Suspect:
    """Return a suspect with where its ranks are, by their own stacks."""
    places = [
        f"rank {rank} is in {quiet.stack[0]}"
        for rank in suspect.ranks
        if (quiet := ranks.get(rank)) is not None and quiet.stack
    ]
    return msgspec.structs.replace(suspect, evidence=[*suspect.evidence, *places])


def _fewest_calls(ranks: Mapping[int, Quiet], waiting: Sequence[int]) -> list[Suspect]:
    """Blame who is behind: all wait, but not in the same call.

    Ranks that make other calls than the others in every step, such as the stages of a pipeline, are apart by
    as many calls as there were steps, and cannot be compared.
    """
    known = {rank: call for rank in waiting if (call := ranks[rank].call) is not None}
    calls = {rank: call.calls for rank, call in known.items()}
    apart = max(calls.values(), default=0) - min(calls.values(), default=0)
    if apart == 0 or apart >= min(call.steps for call in known.values()):
        return []
    behind = [rank for rank, count in calls.items() if count == min(calls.values())]
    others = [rank for rank in waiting if rank not in behind]
    said = f"{_are(behind)} in call {min(calls.values())} of communication, others in {max(calls.values())}"
    return [_suspect(behind, "hang", 0.6, others, said)]


def _suspect(
    ranks: Sequence[int], cause: Cause, confidence: float, victims: Sequence[int], said: str
) -> Suspect:
    return Suspect(
        ranks=sorted(ranks),
        cause=cause,
        confidence=confidence,
        victims=sorted(victims),
        evidence=[f"{name_ranks(sorted(ranks))} {said}", *_say_victims(victims)],
    )


def _say_victims(victims: Sequence[int]) -> list[str]:
    word = "waits" if len(victims) == 1 else "wait"
    return [f"{name_ranks(sorted(victims))} {word} in communication"] if victims else []


def _are(ranks: Sequence[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _say_place(quiet: Quiet) -> str:
    if not quiet.stack:
        return "is in no communication call, and does not answer"
    return f"is in no communication call, but in {quiet.stack[0]}"
