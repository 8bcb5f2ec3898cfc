"""A small DDP job with an emulated device whose rank ``STALLED`` waits for its data while a file is there.

``STALL_FILE`` names the file; the job ends when ``END_FILE`` is there on rank 0.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

OP_S = 0.03
STALL_S = 0.06


class Samples(Dataset[Tensor]):
    """Data that is slow to come where somebody wants it so."""

    def __init__(self, stall: Path | None) -> None:
        self._stall = stall

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> Tensor:
        if self._stall is not None and self._stall.exists():
            time.sleep(STALL_S)
        return torch.ones(8)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    is_stalled = rank == int(os.environ["STALLED"])
    loader = DataLoader(Samples(Path(os.environ["STALL_FILE"]) if is_stalled else None), batch_size=1)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        time.sleep(OP_S)  # An emulated device.
        loss.backward()
        optimizer.step()
        is_over = torch.tensor(float(rank == 0 and Path(os.environ["END_FILE"]).exists()))
        dist.all_reduce(is_over)
        if is_over:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
