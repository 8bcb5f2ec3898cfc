"""A worker as a donor: it gives its state to newcomers of its stage, beside its training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from torch import Tensor

from holdfast.job.feed import Feeding
from holdfast.job.state import State
from holdfast.job.sums import Reduced
from holdfast.membership import Feed


class Donors:
    """The newcomers that this worker feeds; all but ``ask`` is called by the thread that trains."""

    def __init__(self) -> None:
        self.token = ""
        self._asked: SimpleQueue[Feed] = SimpleQueue()
        self._feedings: dict[int, Feeding] = {}
        """By the newcomer's rank."""

    def ask(self, feed: Feed) -> None:
        """Be asked to feed a newcomer, from the thread that listens."""
        self._asked.put(feed)

    def begin(self, state: State, content: Callable[[], dict[str, Any]]) -> None:
        """Copy the state for those who have come since; to be called when no update can be taken back."""
        while True:
            try:
                feed = self._asked.get_nowait()
            except Empty:
                return
            feeding = Feeding(feed.address, self.token)
            try:
                feeding.give("state", state.version, content())
            except Exception as error:  # Whoever waits for it has to know; training goes on.
                feeding.refuse(f"{type(error).__name__}: {error}")
                continue
            self._feedings[feed.rank] = feeding
            state.on_final = lambda reduced, scale: self._pass_on(state.version, reduced, scale)

    def part(self, entered: Sequence[int], version: int) -> None:
        """Let those go who are members from this version on, and those who are lost."""
        for rank, feeding in list(self._feedings.items()):
            if rank in entered:
                feeding.end(version)
            if rank in entered or feeding.is_over:
                del self._feedings[rank]

    def close(self) -> None:
        """Let all go: what this worker holds from now on is not of their stage."""
        for feeding in self._feedings.values():
            feeding.is_over = True
        self._feedings.clear()

    def _pass_on(self, version: int, reduced: Reduced, scale: float) -> None:
        live = [feeding for feeding in self._feedings.values() if not feeding.is_over]
        if not live:
            return
        try:
            update = {
                "gradients": copied(reduced.gradients),
                "magnitudes": list(reduced.magnitudes),
                "scale": scale,
            }
            for feeding in live:
                feeding.give("update", version, update)
        except Exception:  # Such as no memory for the copy: newcomers find another donor, training goes on.
            for feeding in live:
                feeding.is_over = True


def copied(value: Any) -> Any:
    """Return a tree whose tensors nobody else writes to."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return type(value)({key: copied(each) for key, each in value.items()})
    if isinstance(value, list | tuple):
        parts = [copied(each) for each in value]
        return parts if isinstance(value, list) else tuple(parts)
    return value
