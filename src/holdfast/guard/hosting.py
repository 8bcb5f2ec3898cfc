"""The store and the hub that node 0 keeps for the workers of all nodes, new in every attempt."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from holdfast.guard.board import Board
from holdfast.guard.eventlog import EventLog
from holdfast.guard.reporting import Meeting, Reporting, accept
from holdfast.guard.say import Say
from holdfast.guard.store import open_store, share
from holdfast.guard.survival import Survival, hub_env


class Hosting:
    """The store and the hub of the attempt that is going on; ``group`` is always torch's worker group."""

    def __init__(self, say: Say) -> None:
        self.survival: Survival | None = None
        self.hub_env: dict[str, str] = {}
        """Variables by which the workers find the hub."""
        self._say = say
        self._attempt = -1
        self._store_server: Any = None
        self._meeting = Meeting()

    def renew(self, group: Any, log: EventLog, *, attempt: int, migrates: bool, rings: Path) -> None:
        """Give a new attempt an empty store, and a hub with a token of its own."""
        self._attempt = attempt
        self._renew_store(group)
        self._renew_hub(group, log, migrates)
        assert self.survival is not None
        self.survival.follow_wishes(rings)

    def reporting(self, group: Any) -> Reporting | None:
        """Return what this node's guard is to be told, in every attempt anew; None: it judges alone."""
        if group.group_world_size == 1:
            return None
        is_host = group.group_rank == 0
        word = self._meeting.invite(_address(group), attempt=self._attempt) if is_host else ""
        word = share_word(group, word, topic=f"{self.prefix(group)}/controller")
        return self._meeting.host() if is_host else accept(word, attempt=self._attempt)

    def close(self) -> None:
        """Close the hub, and what guards listen at; the store ends with the process."""
        self._close_hub()
        self._meeting.close()

    def prefix(self, group: Any) -> str:
        """Return the beginning of this attempt's keys in the store of the rendezvous."""
        # Dynamic rendezvous prefixes its store by round; the static one does not, so the attempt is needed.
        # (Nodes of a flexible job count their attempts differently, but all see the same round.)
        return f"holdfast/{self._attempt}" if _is_static(group) else "holdfast"

    def _renew_store(self, group: Any) -> None:
        if _is_static(group) and self._attempt == 0:
            return  # The port that people asked for, and nobody has written there yet.
        self._store_server = None
        self._store_server, group.master_addr, group.master_port = open_store(
            group.store,
            is_host=group.group_rank == 0,
            prefix=self.prefix(group),
            address=_address(group),
        )

    def _close_hub(self) -> None:
        if self.survival is not None:
            self.survival.close()

    def _renew_hub(self, group: Any, log: EventLog, migrates: bool) -> None:
        self._close_hub()
        prefix, is_host = self.prefix(group), group.group_rank == 0
        board = Board(group.store, prefix=prefix) if group.group_world_size > 1 else None
        self.survival = Survival(self._say, log, board, is_host=is_host, migrates=migrates)
        word = share_word(group, self.survival.word(_address(group)), topic=f"{prefix}/hub")
        self.hub_env = hub_env(word)


def share_word(group: Any, word: str, *, topic: str = "word") -> str:
    """Return node 0's word about the topic on every node."""
    if group.group_world_size == 1:
        return word
    return share(group.store, is_host=group.group_rank == 0, word=word, topic=topic)


def _address(group: Any) -> str:
    if group.group_world_size == 1:
        return "localhost"
    # Under a static rendezvous the address that people gave is node 0's, and is known to work.
    return str(group.spec.master_addr or group.spec.local_addr or socket.getfqdn())


def _is_static(group: Any) -> bool:
    return bool(group.spec.rdzv_handler.get_backend() == "static")
