"""Times what keeps a rank from training besides communication: its loader, the garbage collector, saving."""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

from holdfast.job.cycle import Cycle
from holdfast.job.on_import import on_import
from holdfast.job.tally import Tally
from holdfast.values import StepFlag

_SAVERS = (
    ("torch.serialization", "save", ("torch",)),
    ("torch.distributed.checkpoint.state_dict_saver", "save", ("torch.distributed.checkpoint",)),
    ("safetensors.torch", "save_file", ()),
)
"""Module, function, and who else has it under that name."""


class Pauses:
    """Hooks around what is not training."""

    def __init__(self, tally: Tally, cycle: Cycle, *, on_skip: Callable[[], None]) -> None:
        self._tally = tally
        self._cycle = cycle
        self._on_skip = on_skip
        self._loaders: dict[int, int] = {}
        self._gc_began_ns = (0, 0, 0)
        self._gc_thread = 0

    def install(self) -> None:
        """Hook into the interpreter now, and into libraries as soon as the script imports them."""
        gc.callbacks.append(self._collect)
        on_import("torch.utils.data.dataloader", self._wrap_loader)
        for module, name, others in _SAVERS:
            on_import(module, functools.partial(self._wrap_saver, module, name, others))

    # --- garbage ------------------------------------------------------------------------------

    def _collect(self, phase: str, info: dict[str, int]) -> None:
        tally = self._tally
        if threading.get_ident() != tally.thread:
            return
        if phase == "start":
            self._gc_began_ns = tally.begin()
        elif self._gc_began_ns[0]:
            tally.gc_ns += tally.lasted(self._gc_began_ns)
            self._gc_began_ns = (0, 0, 0)

    # --- data ---------------------------------------------------------------------------------

    def _wrap_loader(self) -> None:
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        wrapped: Callable[[Any], Any] = _BaseDataLoaderIter.__next__
        tally = self._tally

        @functools.wraps(wrapped)
        def timed_next(iterator: Any) -> Any:
            if threading.get_ident() != tally.thread:
                return wrapped(iterator)
            self._begin_batch(iterator)
            began = tally.begin()
            try:
                batch = wrapped(iterator)
            finally:
                tally.data_ns += tally.lasted(began)
            self._end_batch(batch)
            return batch

        _BaseDataLoaderIter.__next__ = timed_next  # type: ignore[assignment, method-assign]

    def _begin_batch(self, iterator: Any) -> None:
        try:
            symbol = self._symbol(iterator)
            if iterator._num_yielded == 0:
                self._cycle.mark_epoch(symbol)
            if self._cycle.mark_batch(symbol):
                self._on_skip()
        except Exception:
            self._tally.errors += 1

    def _end_batch(self, batch: Any) -> None:
        try:
            if self._cycle.is_foreign:
                self._tally.flags |= StepFlag.EVALUATION
            else:
                self._tally.work += size_of(batch)
        except Exception:
            self._tally.errors += 1

    def _symbol(self, iterator: Any) -> int:
        # An iterator lives for an epoch, what it takes its indices from as long as its loader.
        key = id(iterator._index_sampler)
        symbol = self._loaders.get(key)
        if symbol is None:
            if len(self._loaders) > 1000:
                self._loaders.clear()
            symbol = self._loaders[key] = -1 - len(self._loaders)
        return symbol

    # --- saving -------------------------------------------------------------------------------

    def _wrap_saver(self, module: str, name: str, others: tuple[str, ...]) -> None:
        home = sys.modules[module]
        wrapped = getattr(home, name)
        tally = self._tally

        @functools.wraps(wrapped)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != tally.thread:
                return wrapped(*args, **kwargs)
            began = tally.begin()
            try:
                return wrapped(*args, **kwargs)
            finally:
                tally.save_ns += tally.lasted(began)
                tally.flags |= StepFlag.CHECKPOINT

        for place in (home, *(sys.modules[other] for other in others if other in sys.modules)):
            if getattr(place, name, None) is wrapped:
                setattr(place, name, timed)


def size_of(batch: Any) -> int:
    """Return how many elements a batch has, as far as its first tensor tells; 0: it does not."""
    for _ in range(4):
        if hasattr(batch, "numel"):
            return int(batch.numel())
        if isinstance(batch, dict):
            batch = batch.get("input_ids", next(iter(batch.values()), None))
        elif isinstance(batch, (list, tuple)) and batch:
            batch = batch[0]
        elif hasattr(batch, "data") and isinstance(batch.data, dict):  # A batch of a tokenizer.
            batch = batch.data
        else:
            return 0
    return 0
