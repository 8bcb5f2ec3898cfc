"""The groups and peers that a rank communicates with, numbered as they come, and told in a file.

The file lies beside the ring and is replaced by rename when a channel is new, which is rare.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from holdfast.job.tally import REST
from holdfast.values import Channel

MOST = 256
"""Channels that are told apart; a rank of a large job has a few tens."""


def channels_path(folder: Path, rank: int) -> Path:
    """Return where the channels of a rank are told."""
    return folder / f"channels_{rank}.json"


def read_channels(path: Path) -> dict[int, Channel]:
    """Return the channels of a rank by their numbers; none where the file cannot be read."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[Channel])
    except (OSError, msgspec.MsgspecError):
        return {}
    return {channel.number: channel for channel in found}


class Channels:
    """Gives every group and peer its number."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers: dict[Any, int] = {}
        self._known: list[Channel] = []

    def of_group(self, group: Any) -> int:
        """Return the number of a process group; None stands for that of all ranks."""
        key = 0 if group is None else id(group)
        number = self._numbers.get(key)
        return number if number is not None else self._learn_group(key, group)

    def of_peer(self, peer: int, *, is_sender: bool) -> int:
        """Return the number of the way to a peer, or from it."""
        key = (peer, is_sender)
        number = self._numbers.get(key)
        if number is not None:
            return number
        return self._add(key, Channel(number=self._next(), kind="to" if is_sender else "from", ranks=[peer]))

    def _learn_group(self, key: int, group: Any) -> int:
        import torch.distributed as dist

        if not dist.is_initialized():
            return REST
        actual = dist.group.WORLD if group is None else group
        try:
            ranks = dist.get_process_group_ranks(actual)
        except Exception:  # A group of somebody's own making.
            ranks = []
        name = str(getattr(actual, "group_desc", "") or getattr(actual, "group_name", ""))
        same = next(
            (c for c in self._known if c.kind == "group" and (c.ranks, c.name) == (ranks, name)), None
        )
        if same is not None:
            self._numbers[key] = same.number
            return same.number
        return self._add(key, Channel(number=self._next(), kind="group", ranks=ranks, name=name))

    def _next(self) -> int:
        return len(self._known) + 1

    def _add(self, key: Any, channel: Channel) -> int:
        if len(self._known) >= MOST:
            return REST
        self._numbers[key] = channel.number
        self._known.append(channel)
        fresh = self._path.with_suffix(f".{os.getpid()}.new")
        fresh.write_bytes(msgspec.json.encode(self._known))
        fresh.rename(self._path)
        return channel.number
