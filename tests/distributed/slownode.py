"""A job with a checkpoint after every step, on nodes of which one may get slow.

``NODE`` is the name of the node; the one that ``SLOW_FILE`` names takes three times as long for a step. It
knows nothing of Holdfast.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

PAUSE_S = 0.05


def pause() -> None:
    slow = Path(os.environ["SLOW_FILE"])
    is_slow = slow.exists() and slow.read_text() == os.environ["NODE"]
    time.sleep(PAUSE_S * (3 if is_slow else 1))


def main() -> None:
    dist.init_process_group("gloo")
    rank, end = dist.get_rank(), Path(os.environ["END_FILE"])
    saved = Path(os.environ["CHECKPOINT"])
    weights, step = torch.zeros(8), 0
    if saved.exists():
        weights, step = torch.load(saved, weights_only=True).values()
    is_over = torch.zeros(1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(weights)], lr=0.1)
    while not is_over.item():
        optimizer.zero_grad()
        pause()
        gradient = torch.full((8,), float(step % 7 + rank))
        dist.all_reduce(gradient)
        optimizer.param_groups[0]["params"][0].grad = gradient
        optimizer.step()
        step += 1
        is_over[0] = end.exists() and step >= int(end.read_text() or 0)
        dist.broadcast(is_over, 0)
        if rank == 0:
            torch.save({"weights": weights, "step": step}, saved.with_suffix(".new"))
            saved.with_suffix(".new").rename(saved)
    sys.stdout.write(f"rank {rank} on {os.environ['NODE']} ends at step {step} with {weights.tolist()}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
