"""The job in which the contenders take turns, in the same processes: some steps of one, some of the next.

What disturbs a run on a shared machine lasts for seconds, so it hits neighbouring turns alike. Before each
turn garbage is collected and one step is trained off the clock: caches are warm again, nobody pays for the
one before.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from datetime import timedelta

import msgspec
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from stock.ours import Ours
from stock.theirs import Theirs
from stock.workload import THEIRS, Contender, Measured, Settings

_WARM_STEPS = 2


def main() -> None:
    """Train, measure and report."""
    torch.set_num_threads(1)
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    store = open_store(settings.world)
    dist.init_process_group(
        "gloo", store=PrefixStore("torch", store), rank=_rank(), world_size=settings.world
    )
    ours = {variant.name: Ours(settings, variant) for variant in settings.variants}
    measured = take_turns(settings, {THEIRS: Theirs(settings), **ours})
    # In one write: lines of several ranks never mix.
    sys.stdout.write(f"measured {json.dumps(msgspec.to_builtins(measured))}\n")
    sys.stdout.flush()
    for each in ours.values():
        each.close()
    dist.barrier()
    dist.destroy_process_group()


def open_store(world: int) -> TCPStore:
    """Return the store of all contenders; they find it as they find a launcher's."""
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(host, port, world, _rank() == 0, timedelta(seconds=300))


def take_turns(settings: Settings, contenders: dict[str, Contender]) -> Measured:
    """Return CPU seconds of every turn; who begins changes from round to round."""
    done = dict.fromkeys(contenders, 0)
    cpu_s: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for name in names:
        done[name] = _train(contenders[name], 0, _WARM_STEPS)
    for block in range(settings.blocks):
        for name in names if block % 2 == 0 else reversed(names):
            contender = contenders[name]
            gc.collect()
            done[name] = _train(contender, done[name], 1)
            began_s = time.process_time()
            done[name] = _train(contender, done[name], settings.steps)
            cpu_s[name].append(time.process_time() - began_s)
    return Measured(cpu_s=cpu_s, losses={name: contenders[name].losses() for name in names})


def _train(contender: Contender, first: int, count: int) -> int:
    for number in range(first, first + count):
        contender.step(number)
    contender.finish()
    return first + count


def _rank() -> int:
    return int(os.environ["RANK"])


if __name__ == "__main__":
    main()
