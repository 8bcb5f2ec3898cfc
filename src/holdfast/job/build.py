"""From builders to the module of one worker: the shape of the job, the seed of the stage, what is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from holdfast.errors import InputError
from holdfast.job.probe import shared_weights
from holdfast.job.randomness import own_randomness, seed_device, seed_of


def build(stages: Sequence[Callable[[], Any]], number: int, *, seed: int, device: torch.device) -> nn.Module:
    """Return a stage; whoever builds it, its parameters are drawn from the same seed."""
    with own_randomness(device):
        seed_device(device, seed_of(seed, number))
        try:
            module = stages[number]()
            if not isinstance(module, nn.Module):
                raise TypeError(f"it returned {type(module).__name__}, expected a module")
            module = module.to(device)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise InputError(f"the builder of stage {number} raised {what}") from error
    if not any(each.requires_grad for each in module.parameters()):
        raise InputError(f"stage {number} has no parameters to train")
    return module


def refuse_shared(stages: Sequence[Callable[[], Any]]) -> None:
    """Raise if two stages share a weight, as far as that shows without building them in full."""
    for line in shared_weights(_sketches(stages)):
        raise InputError(line)


def shape_of(world: int, pp: int, microbatches: int) -> int:
    """Return how many pipelines a number of workers makes."""
    if pp < 1:
        raise InputError("stages is empty, expected one builder per stage")
    if microbatches < 1:
        raise InputError(f"microbatches is {microbatches}, expected 1 or more")
    if world % pp:
        raise InputError(
            f"{world} workers do not make whole pipelines of {pp} stages; start a multiple of {pp}"
        )
    return world // pp


def digest_of(module: nn.Module) -> str:
    """Return a hash of all parameters and buffers, in their order."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _sketches(stages: Sequence[Callable[[], Any]]) -> list[tuple[int, nn.Module]]:
    """Return the stages by number, without memory of their own, where their builders allow that."""
    made: list[tuple[int, nn.Module]] = []
    for number, build in enumerate(stages):
        try:
            with torch.device("meta"):
                module = build()
        except Exception:  # Whatever is wrong with it, the worker that needs it will say it.
            continue
        if isinstance(module, nn.Module):
            made.append((number, module))
    return made
