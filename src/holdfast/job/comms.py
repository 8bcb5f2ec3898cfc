"""Times every explicit call of torch.distributed, and every wait for one that was begun before.

Whatever the installed torch exports is wrapped: names drift. On CPU a call blocks, and the clock around it is
the time that others took. On an accelerator a call only queues, and what the clock shows is next to nothing:
nothing false, but no waiting either.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from holdfast.job.channels import Channels
from holdfast.job.tally import REST, Tally
from holdfast.job.timed import Finder, Function, timed

_PREFIXES = ("all_", "broadcast", "gather", "reduce_scatter", "scatter", "barrier", "monitored_")
_PEERS = {"send": "dst", "isend": "dst", "recv": "src", "irecv": "src"}
_MOST_PENDING = 4096


class Comms:
    """Hooks into torch.distributed."""

    def __init__(self, tally: Tally, channels: Channels) -> None:
        self._tally = tally
        self._channels = channels
        self._pending: dict[int, int] = {}
        """Channel of each call under way, by the id of its Work."""
        self._functional = REST
        """Channel of the functional collective that was begun last."""

    def install(self) -> None:
        """Wrap what this torch exports, which has been imported by now."""
        import torch.distributed as dist

        if not dist.is_available():
            return
        from torch.distributed import distributed_c10d as c10d

        wrapped: dict[Function, Function] = {}
        for name in sorted(c10d.__all__):
            if name.startswith(_PREFIXES) or name == "reduce" or name in _PEERS:
                function = getattr(c10d, name)
                finder = self._finder(function, name)
                wrapped[function] = timed(function, self._tally, finder, after=self._note_pending)
                _replace(name, wrapped[function])
        batch = timed(c10d.batch_isend_irecv, self._tally, self._find_batch, after=self._note_batch)
        _replace("batch_isend_irecv", batch)
        _replace("destroy_process_group", self._forgetting(c10d.destroy_process_group))
        _accept_both(c10d, wrapped)
        wait = timed(dist.Work.wait, self._tally, self._find_pending, calls=0)
        dist.Work.wait = wait  # type: ignore[method-assign]

    def wrap_functional(self) -> None:
        """Time the wait for a functional collective, which is what DTensor uses."""
        from torch.distributed import _functional_collectives as functional

        name = "_resolve_group" if hasattr(functional, "_resolve_group") else "_resolve_group_name"
        setattr(functional, name, self._noting_group(getattr(functional, name)))
        functional.wait_tensor = timed(functional.wait_tensor, self._tally, lambda *_: self._functional)

    def end_step(self) -> None:
        """Forget calls that nobody has waited for in this step."""
        self._pending.clear()

    # --- who is waited for --------------------------------------------------------------------

    def _finder(self, function: Function, name: str) -> Finder:
        """Return what finds the group or the peer in a call's arguments."""
        channels = self._channels
        parameters = list(inspect.signature(function).parameters)
        place = parameters.index("group") if "group" in parameters else len(parameters) + 1

        known = channels.groups

        def of_group(args: Any, kwargs: Any) -> int:
            group = args[place] if len(args) > place else kwargs.get("group")
            return known.get(id(group)) or channels.of_group(group)

        if name not in _PEERS:
            return of_group
        keyword = _PEERS[name]
        is_sender = keyword == "dst"

        def of_peer(args: Any, kwargs: Any) -> int:
            peer = args[1] if len(args) > 1 else kwargs.get(keyword)
            if peer is None:  # From anybody, or by a group's own numbers.
                return of_group(args, kwargs)
            return channels.of_peer(peer, is_sender=is_sender)

        return of_peer

    def _find_batch(self, args: Any, kwargs: Any) -> int:
        messages = args[0] if args else kwargs["p2p_op_list"]
        return self._of_message(messages[0]) if messages else REST

    def _of_message(self, message: Any) -> int:
        return self._channels.of_peer(message.peer, is_sender="send" in message.op.__name__)

    def _find_pending(self, args: Any, kwargs: Any) -> int:
        return self._pending.pop(id(args[0]), REST)

    def _note_pending(self, work: Any, channel: int, args: Any) -> None:
        if len(self._pending) < _MOST_PENDING:
            self._pending[id(work)] = channel

    def _note_batch(self, works: Any, channel: int, args: Any) -> None:
        each = [self._of_message(message) for message in args[0]] if args else []
        for at, work in enumerate(works):
            self._note_pending(work, each[at] if len(each) == len(works) else channel, args)

    # --- groups that come and go --------------------------------------------------------------

    def _forgetting(self, destroy: Function) -> Function:
        @functools.wraps(destroy)
        def forget(*args: Any, **kwargs: Any) -> Any:
            self._channels.forget()
            return destroy(*args, **kwargs)

        return forget

    def _noting_group(self, resolve: Function) -> Function:
        import torch

        @functools.wraps(resolve)
        def note(*args: Any, **kwargs: Any) -> Any:
            group = resolve(*args, **kwargs)
            if not torch.compiler.is_compiling():
                self._note_group(group)
            return group

        return note

    def _note_group(self, group: Any) -> None:
        try:
            self._functional = self._channels.of_group(group)
        except Exception:
            self._tally.errors += 1


def _replace(name: str, function: Function) -> None:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    # Both, as the same object: P2POp compares functions by identity.
    setattr(c10d, name, function)
    setattr(dist, name, function)


def _accept_both(c10d: Any, wrapped: dict[Function, Function]) -> None:
    """Let P2POp take the functions as they were too: a script may have imported their names before us."""
    import torch

    make = c10d.P2POp.__new__

    @functools.wraps(make)
    def make_either(cls: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        return make(cls, op if torch.compiler.is_compiling() else _ours(op, wrapped), *args, **kwargs)

    init = c10d.P2POp.__init__

    @functools.wraps(init)
    def init_either(message: Any, op: Any, *args: Any, **kwargs: Any) -> None:
        init(message, op if torch.compiler.is_compiling() else _ours(op, wrapped), *args, **kwargs)

    c10d.P2POp.__new__ = make_either
    c10d.P2POp.__init__ = init_either


def _ours(op: Any, wrapped: dict[Function, Function]) -> Any:
    return wrapped.get(op, op) if inspect.isfunction(op) else op
