"""A loop of somebody's own: two optimizers, a GradScaler, accumulation and its own communication hook.

``torchrun --nproc-per-node 2 loop.py [--steps N] [--evaluate-every N] [--save-every N] [--growing]``
"""

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from watched.sabotage import Sabotage, SlowDataset, batched

BATCH = 8
ACCUMULATED = 2


def main() -> None:
    """Train."""
    options = parse()
    torch.set_num_threads(1)
    if options.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"]) % len(cores)]})
    dist.init_process_group("gloo")
    torch.manual_seed(options.seed)
    sabotage = Sabotage()
    model = build(options.width, options.op_ms / 1000, sabotage)
    wrapped = DistributedDataParallel(model)
    wrapped.register_comm_hook(None, averaged)
    optimizers = [
        torch.optim.SGD(model[0].parameters(), lr=0.01),
        torch.optim.AdamW(model[-1].parameters(), lr=0.001),
    ]
    scaler = torch.amp.GradScaler("cpu")
    train(options, wrapped, optimizers, scaler, sabotage)
    dist.destroy_process_group()


def build(width: int, op_s: float, sabotage: Sabotage) -> nn.Sequential:
    """Return a small network whose layers take so long, as on a device that is not there."""
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    if op_s:
        # As long as the batch is large, as on a device that is busy.
        model[0].register_forward_hook(lambda _, inputs, __: time.sleep(op_s * len(inputs[0]) / BATCH))
        model[2].register_full_backward_hook(
            lambda _, __, outputs: time.sleep(2 * op_s * len(outputs[0]) / BATCH)  # type: ignore[index]
        )
    sabotage.attach(model[2])
    return model


def averaged(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """Average the gradients in half precision, as people do."""
    half = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    future: Any = dist.all_reduce(half, async_op=True).get_future()
    chained: torch.futures.Future[Tensor] = future.then(lambda done: bucket.buffer().copy_(done.value()[0]))
    return chained


def train(
    options: argparse.Namespace,
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    scaler: torch.amp.GradScaler,
    sabotage: Sabotage,
) -> None:
    """Run the loop."""
    data = TensorDataset(torch.randn(512, options.width), torch.randn(512, options.width))
    slow = SlowDataset(data, sabotage, BATCH * ACCUMULATED)
    loader = DataLoader(slow, batch_size=BATCH, shuffle=True, collate_fn=batched(sabotage))
    held_out = DataLoader(data, batch_size=64)
    if options.growing:
        loader = DataLoader(data, batch_sampler=Growing(len(data), ACCUMULATED * options.steps))
    batches = forever(loader)
    mark = mark_step(model, options.traceml)
    for step in range(options.steps):
        with mark():
            for optimizer in optimizers:
                optimizer.zero_grad()
            for _ in range(ACCUMULATED):
                inputs, targets = next(batches)
                loss = (model(inputs) - targets).square().mean() / ACCUMULATED
                scaler.scale(loss).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
            sabotage.end_step()
        if options.evaluate_every and step % options.evaluate_every == options.evaluate_every - 1:
            evaluate(model, held_out)
        if options.save_every and step % options.save_every == options.save_every - 1:
            save(model)
    print(f"loss {loss.item()!r}", flush=True)


def mark_step(model: nn.Module, is_traced: bool) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Return what a step is done within: nothing, or what TraceML asks people to put there."""
    if not is_traced:
        return contextlib.nullcontext
    import traceml_ai

    traceml_ai.init(mode="auto")
    return lambda: traceml_ai.trace_step(model)


class Growing:
    """Batches that get larger as training goes on, up to three times the first."""

    def __init__(self, samples: int, batches: int) -> None:
        self._samples = samples
        self._batches = batches
        self._count = 0

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(self._samples // BATCH):
            size = round(BATCH * (1 + 2 * min(1.0, self._count / self._batches)))
            self._count += 1
            yield torch.randint(self._samples, (size,)).tolist()


def forever(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield batches, epoch after epoch."""
    while True:
        yield from loader


def evaluate(model: nn.Module, held_out: DataLoader[Any]) -> None:
    """Look at the held-out data."""
    with torch.no_grad():
        for inputs, _ in held_out:
            model(inputs)


def save(model: nn.Module) -> None:
    """Write a checkpoint, slowly, as to a far disk."""
    if dist.get_rank() == 0:
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), Path(folder) / "model.pt")
            time.sleep(0.3)
    dist.barrier()


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--growing", action="store_true", help="batches that grow as training goes on")
    parser.add_argument("--op-ms", type=float, default=10.0)
    parser.add_argument("--evaluate-every", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--traceml", action="store_true", help="mark steps for TraceML")
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
