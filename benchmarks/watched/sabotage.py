"""Second ways to break a rank, from within its script, unlike those of the lab: ``KIND:RANK:STEP:SECONDS``.

A job that imports this is hurt from the given step on, if ``SABOTAGE`` says so.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.data import Dataset, default_collate

from watched.sabotage_env import SABOTAGE_ENV


class Sabotage:
    """What this rank has to suffer, and whether it is time."""

    def __init__(self) -> None:
        kind, rank, step, amount = (os.environ.get(SABOTAGE_ENV) or ":-1:0:0").split(":")
        self.kind = kind if int(rank) == int(os.environ.get("RANK", "0")) else ""
        self.step = 0
        self._from = int(step)
        self._amount = float(amount)
        self._kept: list[Any] = []

    def is_on(self, kind: str) -> bool:
        """Say whether this kind of harm is due now."""
        return self.kind == kind and self.step >= self._from

    @property
    def amount_s(self) -> float:
        """How many seconds a step it should take."""
        return self._amount

    def attach(self, module: nn.Module) -> None:
        """Slow the module's forward down, as a device that got hot would."""
        module.register_forward_hook(self._hot)

    def _hot(self, module: Any, inputs: Any, output: Any) -> None:
        if self.is_on("hot"):
            time.sleep(self._amount)

    def end_step(self) -> None:
        """Do what is done between steps."""
        self.step += 1
        if self.is_on("collect"):
            _repeat(self._amount, _make_and_collect)
        if self.is_on("touch"):
            _repeat(self._amount, _touch_new_memory)
        if self.is_on("sleep_forever"):
            time.sleep(3600)


def _repeat(seconds: float, action: Callable[[], None]) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        action()


def _make_and_collect() -> None:
    for _ in range(3000):
        pair: list[Any] = []
        pair.append(pair)
    gc.collect()


def _touch_new_memory() -> None:
    # Larger than what the allocator keeps: every call gets fresh pages from the kernel.
    bytearray(64 << 20)


class SlowDataset(Dataset[Any]):
    """A dataset whose samples take longer to prepare, by computing."""

    def __init__(self, dataset: Dataset[Any], sabotage: Sabotage, batch: int) -> None:
        self._dataset = dataset
        self._sabotage = sabotage
        self._batch = batch

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        if self._sabotage.is_on("prepare"):
            _repeat(self._sabotage.amount_s / self._batch, lambda: None)
        return self._dataset[index]


def batched(sabotage: Sabotage) -> Callable[[list[Any]], Any]:
    """Return what joins samples to a batch, twice as large for a rank that is to get more."""

    def join(samples: list[Any]) -> Any:
        return default_collate(samples * 2 if sabotage.is_on("more") else samples)

    return join
