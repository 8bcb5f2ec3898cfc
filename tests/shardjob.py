"""A job of two ranks in the ways that torch itself splits a model; rank 1 stalls in known steps of each."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from pairs import join_group, rank, tell

STEPS, STALLED, STALL_S = 6, (2, 4), 0.2
"""Of each kind of job; rank 1 stalls before the forward pass of the stalled ones, longer than a host does."""
Net = Callable[[torch.Tensor], Any]


def _model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))


def tensor_parallel() -> list[float]:
    """Split both layers over the ranks."""
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return _train(parallelize_module(_model(), init_device_mesh("cpu", (2,)), plan))


def sharded() -> list[float]:
    """Shard all parameters over the ranks (FSDP2)."""
    model = _model()
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    return _train(model)


def hybrid() -> list[float]:
    """Shard over one dimension of a mesh and replicate over the other (HSDP)."""
    model = _model()
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh)
    return _train(model)


def plain_ddp() -> list[float]:
    """Replicate."""
    return _train(DistributedDataParallel(_model()))


def static_ddp() -> list[float]:
    """Replicate a graph that never changes."""
    return _train(DistributedDataParallel(_model(), static_graph=True))


def searching_ddp() -> list[float]:
    """Replicate, and look for parameters that were not used."""
    return _train(DistributedDataParallel(_Unused(), find_unused_parameters=True))


class _Unused(nn.Module):
    """A model with parameters that it does not use; DDP warns where there are none."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = _model(), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        """Use some."""
        return self.used(x)


def hooked_ddp() -> list[float]:
    """Replicate, with a communication hook of the user's own."""
    model = DistributedDataParallel(_model())
    # DDP reads a function's annotations, and refuses those that are text.
    model.register_comm_hook(None, lambda state, bucket: _halve(bucket.buffer()))
    return _train(model)


def _halve(gradients: torch.Tensor) -> Any:
    work = dist.all_reduce(gradients, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0] / 2)


def accumulating_ddp() -> list[float]:
    """Join gradients only in the last of three passes of a step."""
    model = DistributedDataParallel(_model())

    def passes(x: torch.Tensor) -> Any:
        with model.no_sync():
            for _ in range(2):
                model(x).square().mean().backward()
        return model(x)

    return _train(model, passes)


def wasteful_ddp() -> list[float]:
    """Join gradients in each of three passes of a step."""
    model = DistributedDataParallel(_model())

    def passes(x: torch.Tensor) -> Any:
        for _ in range(2):
            model(x).square().mean().backward()
        return model(x)

    return _train(model, passes)


def two_ddps() -> list[float]:
    """Two replicated models in one step."""
    first, second = DistributedDataParallel(_model()), DistributedDataParallel(_model(1))
    both = nn.ModuleList([first, second])
    return _train(both, lambda x: first(x) + second(x))


def compiled() -> list[float]:
    """Compile a whole step with a collective in it; rank 1 stalls there too."""
    model = _model()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def joined(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        return x / 2

    return _train(model, lambda x: joined(model(x).detach().clone()) + model(x))


KINDS: dict[str, Callable[[], list[float]]] = {
    each.__name__: each
    for each in (
        tensor_parallel,
        sharded,
        hybrid,
        plain_ddp,
        static_ddp,
        searching_ddp,
        hooked_ddp,
        accumulating_ddp,
        wasteful_ddp,
        two_ddps,
        compiled,
    )
}


def _train(model: nn.Module, forward: Net | None = None) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(3)
    losses = []
    for step in range(STEPS):
        x = torch.randn(8, 16)
        if step in STALLED and rank() == 1:
            time.sleep(STALL_S)
        optimizer.zero_grad()
        loss = (forward or model)(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach().item()))
    return losses


def ddp_figures() -> dict[str, int]:
    """Return what DDP's own log says of the last module of a short run."""
    model = DistributedDataParallel(_model())
    _train(model)
    assert model.logger is not None
    model.logger.set_runtime_stats_and_log()
    figures = model.logger._get_ddp_logging_data().ints_map
    return {name: int(figures[name]) for name in ("iteration", "avg_backward_comm_time", "world_size")}


def main() -> None:
    """Train in each way, one after the other."""
    warnings.simplefilter("ignore")
    join_group()
    told = {name: train() for name, train in KINDS.items()}
    tell({"losses": told, "figures": ddp_figures()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
