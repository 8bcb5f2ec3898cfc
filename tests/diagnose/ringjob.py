"""A job that is mostly network: in every step the ranks add up 4 MB, and say what their links have done."""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from holdfast.detect.links import LinkSnapshot
from holdfast.job.linkpage import LinkPage, LinkPageReader

EVERY_NS = 80_000_000


def main(steps: int) -> None:
    """Do so many steps, and print each new snapshot as a line of JSON."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    path = Path(os.environ["HOLDFAST_LAB"]) / f"own_links_{dist.get_rank()}.page"
    page = LinkPage(path, rank=dist.get_rank(), every_ns=EVERY_NS)
    reader = LinkPageReader(path, LinkSnapshot)
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    gradients = torch.zeros(1 << 20)
    last: LinkSnapshot | None = None
    for _ in range(steps):
        dist.all_reduce(gradients)
        weight.grad = torch.zeros(1)
        optimizer.step()
        page.update(time.monotonic_ns())
        snapshot = reader.read()
        if snapshot is not None and snapshot != last:
            sys.stdout.write(msgspec.json.encode(snapshot).decode() + "\n")
            last = snapshot
    sys.stdout.flush()
    dist.destroy_process_group()
    # Until it is collected, the group keeps its threads; gloo's abort an interpreter that ends first.
    gc.collect()


if __name__ == "__main__":
    main(int(sys.argv[1]))
