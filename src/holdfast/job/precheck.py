"""The same probes before the first step, where ``--precheck`` asks for them: of all ranks, when they meet."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

from holdfast.job.orders import Due, ProbeOrder

PRECHECK_ENV = "HOLDFAST_PRECHECK"
"""Set by a launcher that wants it, to anything but nothing."""
PRECHECK_ID = "precheck"


def install_precheck(folder: Path, *, rank: int) -> None:
    """Have every rank probed right after the user's process group is there; torch.distributed is imported."""
    home: Any = sys.modules["torch.distributed.distributed_c10d"]
    dist: Any = sys.modules["torch.distributed"]
    wrapped = home.init_process_group
    attempt = os.environ.get("HOLDFAST_ATTEMPT", "0")

    @functools.wraps(wrapped)
    def init(*args: Any, **kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        home.init_process_group = wrapped  # Once is enough.
        dist.init_process_group = wrapped
        _check(folder, rank, attempt)
        return result

    home.init_process_group = init
    dist.init_process_group = init


def _check(folder: Path, rank: int, attempt: str) -> None:
    try:
        from torch import distributed as dist

        from holdfast.job.prober import obey

        ranks = list(range(dist.get_world_size()))
        obey(Due(precheck_order(ranks, attempt), is_late=False), folder, rank=rank)
    except Exception:  # A check that cannot be made is not made; its result is missing, which is told.
        return


def precheck_order(ranks: list[int], attempt: str = "0") -> ProbeOrder:
    """Return the order that all ranks carry out; nobody has to be told."""
    return ProbeOrder(
        id=f"{PRECHECK_ID}-{attempt}",
        at_step=0,
        ranks=ranks,
        kinds=["gemm", "links"],
        passes=_ring(ranks),
        timeout_s=10.0,
        repeats=10,
    )


def _ring(ranks: list[int]) -> list[list[tuple[int, int]]]:
    """Return the links of a ring, those of a pass at the same time: two passes, or three."""
    if len(ranks) < 2:
        return []
    links = list(zip(ranks, [*ranks[1:], ranks[0]], strict=True))
    if len(links) % 2 == 0:
        return [links[0::2], links[1::2]]
    return [links[0:-1:2], links[1:-1:2], links[-1:]]
