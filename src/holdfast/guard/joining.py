"""``holdfast join``: one more worker for a job under way, on a machine that its launcher knows nothing of.

Node 0's launcher leaves an invitation in the run directory, readable by its user alone: where the hub is, the
token, and what workers run. Whoever can read it becomes a worker: it takes a place that is free, or waits as
a spare until there is one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from holdfast.errors import InputError
from holdfast.guard.posting import TOKEN_ENV
from holdfast.job.attach import ATTACHED_ENV, ATTEMPT_ENV, RINGS_ENV
from holdfast.job.messages import NEWCOMER_ENV

FILE = "invitation.json"
_NOT_PASSED_ON = (ATTACHED_ENV, RINGS_ENV, TOKEN_ENV)
_FIRST_SPARES = 100_000
"""More than anybody starts; a folder that is full of names has another reason."""


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has to know that no launcher started."""

    schema: int = 1
    hub: dict[str, str]
    """Variables by which it finds the hub."""
    attempt: int
    world_size: int
    command: list[str]
    """What workers run, without the interpreter."""
    folder: str
    """Where they run it."""
    host: str
    rings: str
    """Of the launcher's node: workers there are seen by its guard."""


_INVITATION = msgspec.json.Decoder(Invitation)


def invite(run_dir: Path, invitation: Invitation) -> None:
    """Write the invitation, in place of one of an earlier attempt."""
    fresh = run_dir / f".{FILE}.{os.getpid()}"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(invitation))
    fresh.rename(run_dir / FILE)


def disinvite(run_dir: Path) -> None:
    """Take the invitation back: the run is over."""
    with contextlib.suppress(OSError):
        (run_dir / FILE).unlink()


def read_invitation(run_dir: Path) -> Invitation:
    """Return the invitation to a run; ``InputError`` if there is none."""
    file = run_dir / FILE
    try:
        return _INVITATION.decode(file.read_bytes())
    except FileNotFoundError:
        raise InputError(
            f"{file} is not there: expected the run directory of a job that survives deaths"
        ) from None
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(f"{file}: {error}") from None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """How to become a worker of a run."""

    command: list[str]
    """Without the interpreter."""
    env: dict[str, str]
    folder: str


def join(run_dir: Path) -> NoReturn:
    """Become a worker of a run; does not return."""
    entry = take_entry(run_dir)
    try:
        os.chdir(entry.folder)
        os.execve(sys.executable, [sys.executable, *entry.command], entry.env)
    except OSError as error:
        raise InputError(f"cannot run in {entry.folder}: {error}") from error


def take_entry(run_dir: Path) -> Entry:
    """Return how to become a worker of a run, under a rank that is nobody else's."""
    invitation = read_invitation(run_dir)
    rank = _take_rank(run_dir / "spares", invitation)
    env = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
    env |= {
        **invitation.hub,
        NEWCOMER_ENV: "1",
        ATTEMPT_ENV: str(invitation.attempt),
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(invitation.world_size),
        "LOCAL_WORLD_SIZE": "1",
    }
    if invitation.host == socket.gethostname() and Path(invitation.rings).is_dir():
        env[RINGS_ENV] = invitation.rings
    return Entry(command=invitation.command, env=env, folder=invitation.folder)


def _take_rank(folder: Path, invitation: Invitation) -> int:
    """Return a number that no other worker of the run has, or had."""
    try:
        folder.mkdir(exist_ok=True)
        for rank in range(invitation.world_size, invitation.world_size + _FIRST_SPARES):
            try:
                os.close(os.open(folder / str(rank), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC))
            except FileExistsError:
                continue
            return rank
    except OSError as error:
        raise InputError(f"{folder}: {error}") from error
    raise InputError(f"{folder} holds {_FIRST_SPARES} names already")
