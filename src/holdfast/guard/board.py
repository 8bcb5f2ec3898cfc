"""What the launchers of a job that survives deaths tell each other in one attempt, through torch's store.

The store's host can die at any moment: every call may raise whatever torch raises then.
"""

from __future__ import annotations

import msgspec
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]


class Board:
    """Notes that stay, in the store of the rendezvous."""

    def __init__(self, store: Store, *, prefix: str) -> None:
        self._store = PrefixStore(f"{prefix}/board", store)

    def post_failure(self) -> None:
        """Say that the attempt has failed, for all nodes."""
        self._store.set("failed", "1")

    def is_failed(self) -> bool:
        """Say whether node 0 has found that the attempt failed."""
        return bool(self._store.check(["failed"]))

    def post_host(self, node: int) -> None:
        """Say that the store is kept by this node."""
        self._store.set("host", str(node))

    def host(self) -> int | None:
        """Return the node that keeps the store, None where nobody has said so."""
        return int(self._store.get("host")) if self._store.check(["host"]) else None

    def post_leaving(self, ranks: list[int]) -> None:
        """Say that the nodes of these workers are to leave, and that the others restart without them."""
        self._store.set("leaving", msgspec.json.encode(ranks).decode())

    def leaving(self) -> list[int]:
        """Return the workers whose nodes are to leave."""
        if not self._store.check(["leaving"]):
            return []
        return msgspec.json.decode(self._store.get("leaving"), type=list[int])

    def post_end(self, ranks: list[int]) -> None:
        """Say that these workers, all of one node, have ended."""
        place = self._store.add("ends", 1)
        self._store.set(f"end {place}", msgspec.json.encode(ranks).decode())

    def ended(self) -> set[int]:
        """Return the workers whose launchers have said that they ended."""
        names = [f"end {place}" for place in range(1, self._store.add("ends", 0) + 1)]
        found = [name for name in names if self._store.check([name])]
        return {rank for name in found for rank in msgspec.json.decode(self._store.get(name), type=list[int])}
