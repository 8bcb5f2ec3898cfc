"""The groups and peers that a rank communicates with, numbered as they come, and told in a file.

The file lies beside the ring and is replaced by rename when a channel is new, which is rare.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.job.files import replace_file
from holdfast.job.tally import REST
from holdfast.telemetry import Channel

_CHANNELS = msgspec.json.Decoder(list[Channel])
MOST = 256
"""Channels that are told apart; a rank of a large job has a few tens."""


def channels_path(folder: Path, rank: int) -> Path:
    """Return where the channels of a rank are told."""
    return folder / f"channels_{rank}.json"


def read_channels(path: Path) -> dict[int, Channel]:
    """Return the channels of a rank by their numbers; none where the file cannot be read."""
    try:
        found = _CHANNELS.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return {}
    return {channel.number: channel for channel in found}


class Channels:
    """Gives every group and peer its number."""

    def __init__(self, path: Path) -> None:
        self.errors = 0
        """Times that the file could not be written."""
        self._path = path
        self.groups: dict[int | str, int] = {}
        """Numbers of groups by their identity, of names by what they say."""
        self._alive: dict[int, object] = {}
        """References to groups that take them off when they die: the next may have the same identity."""
        self._peers: dict[tuple[int, bool], int] = {}
        self._known: list[Channel] = []

    def of_group(self, group: Any) -> int:
        """Return the number of a process group or of its name; None stands for that of all ranks."""
        # By identity, which is cheap: a group that dies takes itself off.
        key = group if isinstance(group, str) else id(group)
        return self.groups.get(key) or self._learn_group(key, group)

    def of_peer(self, peer: int, *, is_sender: bool) -> int:
        """Return the number of the way to a peer, or from it."""
        number = self._peers.get((peer, is_sender))
        if number is not None:
            return number
        number = self._add("to" if is_sender else "from", [int(peer)], "")
        self._peers[peer, is_sender] = number
        return number

    def declare(self, name: str, ranks: list[int]) -> None:
        """Tell of ranks that belong together, through whatever they communicate."""
        if not any((each.kind, each.ranks, each.name) == ("group", ranks, name) for each in self._known):
            self._add("group", ranks, name)

    def forget(self) -> None:
        """Take in that groups have come to their end: names and identities may mean others from now on."""
        self.groups.clear()
        self._alive.clear()

    def _learn_group(self, key: int | str, group: Any) -> int:
        import torch.distributed as dist

        if not dist.is_initialized():
            return REST
        actual = _actual(group)
        try:
            ranks = dist.get_process_group_ranks(actual)
        except Exception:  # A group of somebody's own making.
            ranks = []
        name = str(getattr(actual, "group_desc", "") or getattr(actual, "group_name", ""))
        same = (c for c in self._known if c.kind == "group" and (c.ranks, c.name) == (ranks, name))
        known = next(same, None)
        number = known.number if known is not None else self._add("group", ranks, name)
        if group is not None and not isinstance(group, str):
            id_ = id(group)
            self._alive[id_] = weakref.ref(group, lambda _: self._forget_one(id_))
        self.groups[key] = number
        return number

    def _forget_one(self, key: int) -> None:
        self.groups.pop(key, None)
        self._alive.pop(key, None)

    def _add(self, kind: Literal["group", "to", "from"], ranks: list[int], name: str) -> int:
        if len(self._known) >= MOST:
            return REST
        channel = Channel(number=len(self._known) + 1, kind=kind, ranks=ranks, name=name)
        self._known.append(channel)
        try:
            self._tell()
        except OSError:  # The next channel that is new is another chance.
            self.errors += 1
        return channel.number

    def _tell(self) -> None:
        replace_file(self._path, msgspec.json.encode(self._known))


def _actual(group: Any) -> Any:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    if group is None:
        return dist.group.WORLD
    if isinstance(group, str):
        return distributed_c10d._resolve_process_group(group)  # type: ignore[attr-defined, arg-type]
    return group
