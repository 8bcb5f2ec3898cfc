"""What launchers tell each other through torch's key-value store, and the store of each attempt."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta

import msgspec
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo

from holdfast.guard.deaths import is_victim
from holdfast.values import Death

_DEATH = msgspec.json.Decoder(Death)
_OTHER_NODES_S = 2.0
_NO_SHARED_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


@contextlib.contextmanager
def own_stores_only() -> Iterator[None]:
    """Keep torch's rendezvous from opening a store of its own for the workers, which ours replaces anyway.

    In torch 2.13 a node that joins a flexible job later waits for that store's address, which the first
    node publishes in its first round only.
    """
    before = os.environ.get(_NO_SHARED_STORE)
    os.environ[_NO_SHARED_STORE] = "1"
    try:
        yield
    finally:
        os.environ.pop(_NO_SHARED_STORE)
        if before is not None:
            os.environ[_NO_SHARED_STORE] = before


def share(store: Store, *, is_host: bool, word: str, topic: str = "word") -> str:
    """Return node 0's word about the topic on every node."""
    shared = PrefixStore("holdfast/share", store)
    if is_host:
        shared.set(topic, word)
    return str(shared.get(topic).decode())


def open_store(store: Store, *, is_host: bool, prefix: str, address: str) -> tuple[TCPStore | None, str, int]:
    """Open an empty store on node 0 for one attempt; return its server, where it runs here, and its address.

    Torch keeps one store for all attempts, where a restarted worker can read the address that a dead one
    left behind; with a new store per attempt there is nothing old to read.
    """
    server = TCPStore("localhost", 0, is_master=True, wait_for_workers=False) if is_host else None
    info = RendezvousStoreInfo.build(
        0 if is_host else 1,
        PrefixStore(prefix, store),
        local_addr=address,
        server_port=server.port if server is not None else None,
    )
    return server, info.master_addr, info.master_port


def exchange_deaths(store: Store, mine: Death, *, prefix: str) -> Sequence[Death]:
    """Return all nodes' first deaths in the order of their reports; only ours if the store is gone.

    A node that has only a victim to show waits a moment for the others, so that it can name the guilty.
    """
    deaths = [mine]
    with contextlib.suppress(Exception):  # The store's host may be the very node that died.
        board = PrefixStore(f"{prefix}/deaths", store)
        limit = timedelta(seconds=_OTHER_NODES_S)
        place = board.add("count", 1)
        board.set(f"{place}", msgspec.json.encode(mine).decode())
        if is_victim(mine) and place == 1:
            with contextlib.suppress(Exception):
                board.wait(["2"], limit)
        keys = [f"{number}" for number in range(1, board.add("count", 0) + 1)]
        board.wait(keys, limit)
        deaths = [_DEATH.decode(board.get(key)) for key in keys]
    return deaths
