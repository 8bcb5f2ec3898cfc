"""Times what keeps a rank from training besides communication: its loader, garbage collection, saving."""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

from holdfast.job.cycle import Cycle
from holdfast.job.symbols import Symbols
from holdfast.job.tally import Tally
from holdfast.telemetry import StepFlag

_SAVERS = (
    ("torch.serialization", "save", ("torch",)),
    ("torch.distributed.checkpoint.state_dict_saver", "save", ("torch.distributed.checkpoint",)),
    ("torch.distributed.checkpoint.state_dict_saver", "async_save", ("torch.distributed.checkpoint",)),
    ("safetensors.torch", "save_file", ()),
)
"""Module, function, and who else has it under that name."""


class Pauses:
    """Hooks around what is not training; nothing in them can come out of the call that they are around."""

    def __init__(self, tally: Tally, cycle: Cycle, *, on_skip: Callable[[], None]) -> None:
        self._tally = tally
        self._cycle = cycle
        self._on_skip = on_skip
        self._loaders = Symbols(-1)
        self._datasets = Symbols(1)
        self._gc_began: tuple[int, int] | None = None

    def install(self, hook: Callable[[str, Callable[[], None]], None]) -> None:
        """Hook into the interpreter now, and into libraries as soon as the script imports them."""
        gc.callbacks.append(self._collect)
        hook("torch.utils.data.dataloader", self._wrap_loader)
        hook("torch._dynamo.callback", self._hear_of_compiling)
        for module, name, others in _SAVERS:
            hook(module, functools.partial(self._wrap_saver, module, name, others))

    def _begin(self) -> tuple[int, int] | None:
        try:
            return self._tally.begin()
        except Exception:
            self._tally.errors += 1
            return None

    # --- garbage ------------------------------------------------------------------------------

    def _collect(self, phase: str, info: dict[str, int]) -> None:
        tally = self._tally
        if threading.get_ident() != tally.thread:
            return
        try:
            if phase == "start":
                self._gc_began = tally.begin()
            elif self._gc_began is not None:
                tally.gc_ns += tally.lasted(self._gc_began)
                self._gc_began = None
        except Exception:
            tally.errors += 1

    # --- compiling ----------------------------------------------------------------------------

    def _hear_of_compiling(self) -> None:
        from torch._dynamo.callback import callback_handler

        callback_handler.register_start_callback(self._note_compiling)

    def _note_compiling(self, *args: Any) -> None:
        if threading.get_ident() == self._tally.thread:
            self._tally.flags |= StepFlag.COMPILE

    # --- data ---------------------------------------------------------------------------------

    def _wrap_loader(self) -> None:
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        wrapped: Callable[[Any], Any] = _BaseDataLoaderIter.__next__
        tally = self._tally

        @functools.wraps(wrapped)
        def timed_next(iterator: Any) -> Any:
            if threading.get_ident() != tally.thread:
                return wrapped(iterator)
            symbol = self._ask(iterator)
            began, is_there, batch = self._begin(), False, None
            try:
                batch = wrapped(iterator)
                is_there = True
                return batch
            finally:
                self._answer(symbol, began, is_there, batch)

        _BaseDataLoaderIter.__next__ = timed_next  # type: ignore[assignment, method-assign]

    def _ask(self, iterator: Any) -> int:
        """Take in that a batch is asked for; return the symbol of its loader."""
        symbol = 0
        try:
            symbol = self._symbol(iterator)
            if iterator._num_yielded == 0:
                self._cycle.mark_epoch(symbol)
            if self._cycle.mark_batch(symbol):
                self._on_skip()
        except Exception:
            self._tally.errors += 1
        return symbol

    def _symbol(self, iterator: Any) -> int:
        # A new loader of the same data takes the place of one that is gone.
        try:
            place = self._datasets.of(iterator._dataset)
        except TypeError:  # Lists and the like, to which no weak reference can be made.
            place = -id(iterator._dataset)
        try:
            # An iterator lives for an epoch, what it takes its indices from as long as its loader.
            return self._loaders.of(iterator._index_sampler, place)
        except TypeError:
            return self._loaders.of(iterator, place)

    def _answer(self, symbol: int, began: tuple[int, int] | None, is_there: bool, batch: Any) -> None:
        tally = self._tally
        try:
            if began is not None:
                tally.data_ns += tally.lasted(began)
            if not is_there:
                self._cycle.mark_exhausted(symbol)
            elif self._cycle.is_own(symbol):
                tally.work += size_of(batch)
            else:
                tally.flags |= StepFlag.EVALUATION
        except Exception:
            tally.errors += 1

    # --- saving -------------------------------------------------------------------------------

    def _wrap_saver(self, module: str, name: str, others: tuple[str, ...]) -> None:
        home = sys.modules[module]
        wrapped = getattr(home, name)
        tally = self._tally

        @functools.wraps(wrapped)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != tally.thread:
                return wrapped(*args, **kwargs)
            began = self._begin()
            try:
                return wrapped(*args, **kwargs)
            finally:
                self._saved(began)

        for place in (home, *(sys.modules[other] for other in others if other in sys.modules)):
            if getattr(place, name, None) is wrapped:
                setattr(place, name, timed)

    def _saved(self, began: tuple[int, int] | None) -> None:
        tally = self._tally
        tally.flags |= StepFlag.CHECKPOINT
        try:
            if began is not None:
                tally.save_ns += tally.lasted(began)
        except Exception:
            tally.errors += 1


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
