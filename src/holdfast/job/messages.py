"""What a worker and the hub say to each other: frames of msgpack, four bytes of length before each.

The hub is a thread of node 0's launcher. A worker speaks to it when it joins and after a failure, never on
the fault-free path. A connection that closes without a goodbye is a death.
"""

from __future__ import annotations

import msgspec

from holdfast.membership import Feed, Hungry, Invite, Joined, Placed, Regroup, Reported, Stop

HUB_ENV = "HOLDFAST_HUB"
"""``host:port`` of the hub; set by ``holdfast run`` for every worker."""
TOKEN_ENV = "HOLDFAST_HUB_TOKEN"
"""What a connection to the hub must begin with; new in every attempt."""
NEWCOMER_ENV = "HOLDFAST_NEWCOMER"
"""Set for a worker that is started while the job is under way: how many had its rank before."""
HEADER_BYTES = 4
LIMIT_BYTES = 64 << 20
"""No message is longer."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """First on every connection."""

    token: str
    session: int
    """Counts the pipelines that a script opens one after the other, from 0; each is a job of its own."""
    joined: Joined


class Put(msgspec.Struct, frozen=True, kw_only=True, tag="put"):
    """A value that the other members of a generation need to connect."""

    generation: int
    key: str
    value: bytes


class Want(msgspec.Struct, frozen=True, kw_only=True, tag="want"):
    """Asks for a value that a member will put, or has put."""

    generation: int
    key: str


class Bye(msgspec.Struct, frozen=True, kw_only=True, tag="bye"):
    """The worker is done, and will close its connection when the others are done too."""


FromWorker = Hello | Reported | Hungry | Put | Want | Bye


class Given(msgspec.Struct, frozen=True, kw_only=True, tag="given"):
    """Everything put so far whose key begins as the wanted one does, up to its last slash."""

    generation: int
    values: dict[str, bytes]


class Void(msgspec.Struct, frozen=True, kw_only=True, tag="void"):
    """A member of the generation is gone or has left it: give up what you wait for, and report."""

    generation: int


class Farewell(msgspec.Struct, frozen=True, kw_only=True, tag="farewell"):
    """All are done: nobody needs this worker's connections any more."""


FromHub = Regroup | Stop | Placed | Feed | Invite | Given | Void | Farewell


def encode(message: FromWorker | FromHub) -> bytes:
    """Return the message as a frame."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def body_length(header: bytes) -> int:
    """Return how many bytes follow a header."""
    length = int.from_bytes(header, "big")
    if length > LIMIT_BYTES:
        raise ValueError(f"a message of {length} bytes, expected at most {LIMIT_BYTES}")
    return length
