"""Times every explicit call of torch.distributed, and every wait for one that was begun before.

Whatever the installed torch exports is wrapped: names drift. On CPU a call blocks, and the clock around it is
the time that others took. On an accelerator a call only queues, and what the clock shows is next to nothing:
nothing false, but no waiting either. What fails in here goes unnoticed and is counted; what the user's call
raises is the user's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from holdfast.job.channels import Channels
from holdfast.job.tally import REST, Tally

_PREFIXES = (
    "all_",
    "broadcast",
    "gather",
    "reduce_scatter",
    "scatter",
    "barrier",
    "monitored_",
    "batch_isend",
)
_PEERS = {"send": "dst", "isend": "dst", "recv": "src", "irecv": "src"}
_MOST_PENDING = 4096

Wrapper = Callable[..., Any]


class Comms:
    """Hooks into torch.distributed."""

    def __init__(self, tally: Tally, channels: Channels) -> None:
        self._tally = tally
        self._channels = channels
        self._pending: dict[int, int] = {}
        """Channel of each call under way, by the id of its Work."""

    def install(self) -> None:
        """Wrap what this torch exports, which has been imported by now."""
        import torch.distributed as dist

        if not dist.is_available():
            return
        from torch.distributed import distributed_c10d

        for name in sorted(distributed_c10d.__all__):
            if name.startswith(_PREFIXES) or name == "reduce" or name in _PEERS:
                timed = self._timed(getattr(distributed_c10d, name), name)
                # Both, as the same object: P2POp compares functions by identity.
                setattr(distributed_c10d, name, timed)
                setattr(dist, name, timed)
        dist.Work.wait = self._timed_wait(dist.Work.wait)  # type: ignore[method-assign]

    def wrap_functional(self) -> None:
        """Time the wait for a functional collective, which is what DTensor uses."""
        from torch.distributed import _functional_collectives as functional

        wrapped = functional.wait_tensor
        tally = self._tally

        @functools.wraps(wrapped)
        def timed(*args: Any, **kwargs: Any) -> Any:
            return tally.time(REST, 0, wrapped, args, kwargs)

        functional.wait_tensor = timed

    def _timed(self, function: Wrapper, name: str) -> Wrapper:
        import torch

        find_channel, tally, pending = self._channel_finder(function, name), self._tally, self._pending

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():  # The compiler has to see the call itself.
                return function(*args, **kwargs)
            try:
                channel = find_channel(args, kwargs)
                moved = args[0].nbytes if args else 0
            except Exception:  # A list of tensors, an object, or keywords only.
                channel, moved = REST, _size(args, kwargs)
            result = tally.time(channel, moved, function, args, kwargs)
            if result is not None and len(pending) < _MOST_PENDING:
                pending[id(result)] = channel
            return result

        return timed

    def _timed_wait(self, wait: Wrapper) -> Wrapper:
        tally, pending = self._tally, self._pending

        @functools.wraps(wait)
        def timed(*args: Any, **kwargs: Any) -> Any:
            return tally.time(pending.pop(id(args[0]), REST), 0, wait, args, kwargs)

        return timed

    def end_step(self) -> None:
        """Forget calls that nobody has waited for in this step."""
        self._pending.clear()

    def _channel_finder(self, function: Wrapper, name: str) -> Callable[[Any, Any], int]:
        """Return what finds the group or the peer in a call's arguments."""
        channels = self._channels
        if name in _PEERS:
            return _peer_finder(channels, _PEERS[name])
        parameters = list(inspect.signature(function).parameters)
        place = parameters.index("group") if "group" in parameters else len(parameters) + 1

        def of_group(args: Any, kwargs: Any) -> int:
            return channels.of_group(args[place] if len(args) > place else kwargs.get("group"))

        return of_group


def _peer_finder(channels: Channels, keyword: str) -> Callable[[Any, Any], int]:
    is_sender = keyword == "dst"

    def of_peer(args: Any, kwargs: Any) -> int:
        peer = args[1] if len(args) > 1 else kwargs.get(keyword)
        if peer is None:  # From anybody, or by a group's own numbers.
            return channels.of_group(args[2] if len(args) > 2 else kwargs.get("group"))
        return channels.of_peer(peer, is_sender=is_sender)

    return of_peer


def _size(args: Any, kwargs: Any) -> int:
    """Return how many bytes a call moves, as far as its first argument tells."""
    try:
        first = args[0] if args else next(iter(kwargs.values()))
        if isinstance(first, (list, tuple)):
            return sum(getattr(each, "nbytes", 0) for each in first)
        return int(getattr(first, "nbytes", 0))
    except Exception:
        return 0
