"""A token file that the lab makes itself, and a dataset that reads it record by record with ``os.pread``.

Reading through a system call per sample keeps storage real: it can be slow, and a fault can make it
slower. A record is a page; a sample is the beginning of a record.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from holdfast.lab.gpt import CONTEXT, VOCABULARY

RECORD_BYTES = 4096
RECORDS = 1024
_TOKENS_PER_RECORD = RECORD_BYTES // 2  # Two bytes each.


def token_file(seed: int) -> Path:
    """Return the file of a seed, made first if it is not there yet; safe to call from many ranks at once."""
    folder = Path(tempfile.gettempdir()) / f"holdfast-lab-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"tokens-{seed}.u16"
    if not path.exists():
        fresh = folder / f"{path.name}.{os.getpid()}"
        fresh.write_bytes(make_tokens(seed).tobytes())
        fresh.rename(path)
    return path


def make_tokens(seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    """Return records of a noisy walk over the vocabulary: a model can learn most of it, but not all."""
    generator = np.random.default_rng(seed)
    strides = generator.integers(1, 4, size=(RECORDS, 1))
    starts = generator.integers(0, VOCABULARY, size=(RECORDS, 1))
    walk = starts + strides * np.arange(_TOKENS_PER_RECORD)
    noise = generator.random(walk.shape) < 0.05
    tokens = np.where(noise, generator.integers(0, VOCABULARY, size=walk.shape), walk % VOCABULARY)
    return tokens.astype(np.uint16)


class Tokens(Dataset[Tensor]):
    """``CONTEXT + 1`` tokens per record: inputs and, one position on, targets."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._records = os.fstat(self._fd).st_size // RECORD_BYTES

    def __len__(self) -> int:
        return self._records

    def __getitem__(self, index: int) -> Tensor:
        record = os.pread(self._fd, RECORD_BYTES, index * RECORD_BYTES)
        tokens = np.frombuffer(record, dtype=np.uint16)[: CONTEXT + 1]
        return torch.from_numpy(tokens.astype(np.int64))
