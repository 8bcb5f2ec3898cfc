"""What all rivals train: a small GPT with AdamW on the lab's token file, real compute on one thread.

Four workers on two cores need about 100 ms for a step.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.lab import data, gpt
from rivals.pause import Note

WIDTH, LAYERS, BATCH = 128, 4, 4


class Workload:
    """The model, its batches, and the file of notes of one worker."""

    def __init__(self, *, worker: int, workers: int, seed: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.model: nn.Module = gpt.build(width=WIDTH, layers=LAYERS)
        self._tokens = data.Tokens(data.token_file(seed))
        self._worker, self._workers = worker, workers

    def optimizer(self) -> torch.optim.Optimizer:
        """Return a fresh optimizer of the model."""
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def loss(self, model: nn.Module, step: int) -> Tensor:
        """Return the loss of this worker's batch of a step."""
        first = (step * self._workers + self._worker) * BATCH
        batch = torch.stack([self._tokens[(first + i) % len(self._tokens)] for i in range(BATCH)])
        return gpt.loss_of(model(batch[:, :-1]), batch[:, 1:])


class Notebook:
    """Appends one line per step, at once: a killed worker's last step is on file."""

    def __init__(self, folder: Path, name: str) -> None:
        self._name = f"notes.{name}"
        self._fd = os.open(folder / self._name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def add(self, step: int, *, group: int, is_kept: bool = True) -> None:
        """Note that a step has just ended."""
        note = Note(worker=self._name, step=step, end_s=time.monotonic(), group=group, is_kept=is_kept)
        os.write(self._fd, note.line().encode())
