"""A real job of three ranks over gloo: rank 2 does not enter a collective, and every rank writes its dump.

Call it with a folder. Nobody blocks: the collective is started and not waited for.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORLD, ABSENT = 3, 2
PATIENCE_S = 30.0


def work(rank: int, folder: Path) -> None:
    """Train a little, hang, and write both forms of the dump."""
    import torch
    import torch.distributed as dist

    c10d: Any = torch._C._distributed_c10d
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    pair = dist.new_group([0, 1])
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
        if rank < 2:
            dist.all_reduce(torch.ones(2), group=pair)
    hung = None if rank == ABSENT else dist.all_reduce(torch.ones(8), async_op=True)
    _wait(lambda: _unfinished(c10d._dump_fr_trace_json()) == (hung is not None))
    for name, data in (("pickle", c10d._dump_fr_trace()), ("json", c10d._dump_fr_trace_json())):
        target = folder / name / f"trace_{os.uname().nodename}_rank_{rank}{'.json' * (name == 'json')}"
        target.with_suffix(".part").write_bytes(data)
        target.with_suffix(".part").rename(target)
    # Who leaves first breaks the connections of the others.
    _wait(lambda: len(list(folder.glob("json/*.json"))) == WORLD)
    os._exit(0)


def _unfinished(data: bytes) -> int:
    return sum(not entry["retired"] for entry in json.loads(data)["entries"])


def _wait(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline_s, "the job did not come to its hang"
        time.sleep(0.01)


def main(folder: Path) -> None:
    """Start all ranks, and wait for them."""
    import multiprocessing

    for name in ("pickle", "json"):
        (folder / name).mkdir()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work, args=(rank, folder)) for rank in range(WORLD)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
