"""The beat of a worker: listeners are called at the end of every step, that is after each optimizer update.

With several optimizers the first one to step sets the beat, as it does for the ring.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from holdfast.job.on_import import on_import


class Beat:
    """Counts steps from 0 and tells the listeners, in the order in which they came, which one ended."""

    def __init__(self) -> None:
        self.step = 0
        """The step that the worker is in."""
        self._listeners: list[Callable[[int], None]] = []
        self._leader: weakref.ref[Any] | None = None

    def listen(self, listener: Callable[[int], None]) -> None:
        """Have a function called with the number of each step that ends."""
        self._listeners.append(listener)

    def install(self) -> None:
        """Register with torch's optimizers as soon as the script has imported them."""
        on_import("torch.optim.optimizer", self._register)

    def _register(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._end_step)

    def _end_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        leader = self._leader() if self._leader is not None else None
        if leader is None:
            self._leader = weakref.ref(optimizer)
        elif leader is not optimizer:
            return
        ended = self.step
        self.step += 1
        for listener in self._listeners:
            listener(ended)
