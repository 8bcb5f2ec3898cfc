"""A small pipeline, any worker of which may be made to stand still.

A file ``stick`` in the folder ``FOLDER`` makes rank ``STUCK`` wait in its forward pass for a lock that it
holds itself.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.job.build import digest_of
from pipejobs import first_stage, last_stage, make_pipeline

FOLDER = Path(os.environ["FOLDER"])
RANK = int(os.environ["RANK"])
STEPS = int(os.environ.get("STEPS", "60"))
IS_STUCK = os.environ.get("STUCK") == str(RANK)


class Sticky(nn.Module):
    """Passes its input on, unless its worker was told to stick."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Take a little time, as a layer does; or for ever."""
        time.sleep(0.005)
        if IS_STUCK and (FOLDER / "stick").exists():
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        return inputs


def main() -> None:
    """Train, and say what came of it."""
    torch.set_num_threads(1)
    stages = [lambda: nn.Sequential(first_stage(), Sticky()), lambda: nn.Sequential(Sticky(), last_stage())]
    with make_pipeline(stages, exact=True) as pipeline:
        for step in range(STEPS):
            pipeline.step()
            if step == STEPS // 3:
                (FOLDER / f"rank {RANK} trains").touch()
    sys.stdout.write(f"rank {RANK} digest {digest_of(pipeline.module)}\n")


main()
