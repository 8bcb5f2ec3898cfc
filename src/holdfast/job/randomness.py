"""Random numbers that belong to the work, not to whoever does it.

Dropout and everything else that a stage draws is seeded by (step, pipeline, micro-batch, stage), so that a
micro-batch gives the same result on every worker and however often it is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MASK = (1 << 64) - 1


def seed_of(*numbers: int) -> int:
    """Mix numbers into 63 bits; neighbouring numbers give unrelated seeds (SplitMix64's finalizer)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state >> 1


def seed_device(device: torch.device, seed: int) -> None:
    """Seed the generators that a forward on this device draws from."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


@contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Give the generators back as they were: the user's own code may draw from them between steps."""
    states = torch.default_generator.get_state()
    on_device = None if device.type == "cpu" else torch.get_device_module(device).get_rng_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(states)
        if on_device is not None:
            torch.get_device_module(device).set_rng_state(on_device)
