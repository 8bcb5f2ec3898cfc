"""The same probes before the first step, where ``--precheck`` asks for them: of all ranks, when they meet.

The launcher lays the order into the folder of rings; who finds one there carries it out, once.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import msgspec

from holdfast.job.orders import Due, ProbeOrder

_PROBE_ORDER = msgspec.json.Decoder(ProbeOrder)


def precheck_path(folder: Path) -> Path:
    """Return where the order lies."""
    return folder / "precheck.json"


def read_precheck(folder: Path) -> ProbeOrder | None:
    """Return the order, None where there is none."""
    try:
        return _PROBE_ORDER.decode(precheck_path(folder).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def install_precheck(order: ProbeOrder, folder: Path, *, rank: int) -> None:
    """Have this rank probed right after the user's process group is there; torch.distributed is imported."""
    home: Any = sys.modules["torch.distributed.distributed_c10d"]
    dist: Any = sys.modules["torch.distributed"]
    wrapped = home.init_process_group

    @functools.wraps(wrapped)
    def init(*args: Any, **kwargs: Any) -> Any:
        result = wrapped(*args, **kwargs)
        # Once is enough.
        home.init_process_group = dist.init_process_group = wrapped
        _check(order, folder, rank)
        return result

    home.init_process_group = dist.init_process_group = init


def _check(order: ProbeOrder, folder: Path, rank: int) -> None:
    try:
        from holdfast.job.prober import obey  # It imports torch, which the script has done by now.

        obey(Due(order, is_late=False), folder, rank=rank)
    except Exception:  # A check that cannot be made is not made; its result is missing, which is told.
        return
