"""What a script gives to a pipeline, and what a step gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

Data = Callable[[int, int, int], tuple[Any, Any]]
"""Step, pipeline and micro-batch in; inputs and targets out. The same arguments give the same data."""


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What most jobs leave as it is."""

    autocast: Any = None
    """Type for autocast in forward, such as ``torch.bfloat16``; None: none."""
    is_staggered: bool = True
    """Stages update at once, without waiting for the others, and keep a shadow of their state."""
    fault_free: Literal["zero_bubble", "1f1b"] = "zero_bubble"
    """The schedule while nobody is slow or dead."""
    seed: int = 0
    """Of parameters and dropout."""
    device: str = "cpu"
    memory_bytes: int | None = None
    """Memory of a worker; from it follows how many micro-batches it may hold. None: no limit."""
    costs: tuple[tuple[float, float, float], ...] = ()
    """Per stage: forward, input and weight gradient of a micro-batch, in any unit; none: all alike."""
    comm: float = 0.0
    """A transfer between stages, in the unit of the costs."""
    checkpoints: str | None = None
    """Folder of checkpoints that are written beside the training; a later start goes on from the newest."""
    checkpoint_every: int = 100
    """Steps between them."""
    mttf_h: float | None = None
    """Hours between failures of the whole job on average, as ``holdfast reliability ettr`` tells; where it is
    given, checkpoints are as many steps apart as loses least."""
    listeners: tuple[Any, ...] = ()
    """Objects with ``reach(point, op, step)``, called at every point that this worker reaches."""


class Settling(Protocol):
    """What can wait until its steps are final."""

    def settle(self) -> None:
        """Return when every step so far is."""


class Loss:
    """The mean loss of a step; known at once, or when it is asked for while its step is under way."""

    def __init__(self, pipeline: Settling, step: int) -> None:
        self.step = step
        self._pipeline = pipeline
        self._value: float | None = None

    def item(self) -> float:
        """Return the number; waits for the step's verdict where that is still open."""
        if self._value is None:
            self._pipeline.settle()
        assert self._value is not None
        return self._value

    def set(self, value: float) -> None:
        """Be told; the same number, should a step have been computed again."""
        self._value = value

    def __float__(self) -> float:
        return self.item()

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec)

    def __repr__(self) -> str:
        return f"Loss({self.item()!r}, step={self.step})"
