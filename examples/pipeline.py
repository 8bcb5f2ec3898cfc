"""Two stages, trained by as many pipelines as there are workers for; any worker may die.

holdfast run --nproc-per-node 4 examples/pipeline.py        then, elsewhere: kill -9 one of the workers
"""

import torch
from torch import nn

import holdfast

torch.set_num_threads(1)


def first() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64))


def last() -> nn.Module:
    return nn.Sequential(nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 1))


def data(step: int, pipeline: int, microbatch: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(hash((step, pipeline, microbatch)))
    inputs = torch.randn(32, 16, generator=generator)
    return inputs, inputs.square().mean(1, keepdim=True)


with holdfast.Pipeline(
    [first, last],
    loss=nn.functional.mse_loss,
    optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-3),
    data=data,
    microbatches=4,
    max_norm=1.0,
    exact=True,
) as pipeline:
    for step in range(pipeline.step_number, 1000):  # Not 0 for a worker that comes later.
        loss = pipeline.step()
        if step % 100 == 0 and pipeline.is_leader:
            print(f"step {step} loss {loss:.4f} on {len(pipeline.workers)} workers")
