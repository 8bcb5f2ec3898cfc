"""Who died first, and how to tell it: pure functions over what was seen of each death.

A worker whose peer vanishes dies as well, milliseconds later and with a loud traceback about sockets. Such
victims are known by their words, and are named only when nobody else is there to blame.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from holdfast.errors import TrainingLostError
from holdfast.incidents.words import short_cause
from holdfast.values import Death

_VICTIM_WORDS = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "timed out waiting",
    "wait timeout",
    "socket timeout",
    "remote process exited",
    "remote peer",
    "connection was likely closed",
    "failed to recv, got 0 bytes",
    "peer closed",
    "ncclremoteerror",
    "connectfullmesh failed",
    "application timeout caused pair closure",
    "client socket has timed out",
    "watchdog caught collective operation timeout",
    "training ended after step",  # Our own pipeline, when nobody is left to hold a stage.
)
_HINTS = {
    "SIGKILL": "killed from outside: kill -9, or the kernel when memory ran out (dmesg tells)",
    "SIGSEGV": "a crash in native code",
    "SIGBUS": "a crash in native code, or shared memory that ran out (/dev/shm)",
    "SIGABRT": "an abort in native code",
}


def is_victim(death: Death) -> bool:
    """Say whether the death looks like the consequence of a peer's."""
    text = f"{death.error or ''}\n{death.traceback or ''}".lower()
    return any(word in text for word in _VICTIM_WORDS)


def is_over(death: Death) -> bool:
    """Say whether a worker ended because the job cannot go on: there is nothing to come back to."""
    return (death.error or "").startswith(f"{TrainingLostError.__module__}.{TrainingLostError.__name__}")


def first_to_die(deaths: Sequence[Death]) -> Death | None:
    """Return the earliest death that is not a mere consequence; times must be of one node's clock."""
    guilty = [death for death in deaths if not is_victim(death)] or list(deaths)
    return min(guilty, key=lambda death: (death.seen_s, death.rank), default=None)


def first_of_nodes(firsts: Sequence[Death]) -> Death | None:
    """Return the first among the nodes' first deaths, given in the order in which they were reported."""
    guilty = [death for death in firsts if not is_victim(death)] or list(firsts)
    return guilty[0] if guilty else None


def describe(death: Death) -> str:
    """Return the one line that names the worker and what ended it."""
    return f"rank {death.rank} on host {death.host} died first: {cause(death)}"


def others(first: Death, deaths: Sequence[Death]) -> list[str]:
    """Return lines about the workers that died beside the first: of the same error, or because of it."""
    beside = [death for death in deaths if death != first]
    alike = [death.rank for death in beside if death.error is not None and death.error == first.error]
    rest = [death.rank for death in beside if death.rank not in alike]
    lines = []
    if alike:
        lines.append(f"{_ranks(alike)} died of the same error")
    if rest:
        lines.append(f"{_ranks(rest)} ended as a consequence")
    return lines


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def cause(death: Death) -> str:
    """Return what ended the worker, with its exit code or signal and what that usually means."""
    hint = _HINTS.get(death.signal or "")
    return f"{short_cause(death)}{f'; {hint}' if hint else ''}"


def shell_code(returncode: int) -> tuple[int, str | None]:
    """Return the exit code as a shell reports it, and the signal's name, from a ``Popen.returncode``."""
    if returncode >= 0:
        return returncode, None
    try:
        return 128 - returncode, signal.Signals(-returncode).name
    except ValueError:
        return 128 - returncode, f"signal {-returncode}"
