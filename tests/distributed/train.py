"""A small DDP job that knows nothing of Holdfast; what goes wrong in it is set by variables.

``FAIL=1@5:raise``: rank 1, at step 5 of its first attempt, raises (or exit=3, kill, segv, hang).
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "10"))
PAUSE_S = float(os.environ.get("PAUSE_S", "0.02"))


def fail(how: str) -> None:
    if how == "raise":
        raise ValueError("the input is broken")
    if how == "destroy":
        try:
            raise ValueError("the input is broken")
        finally:
            dist.destroy_process_group()
            time.sleep(0.5)
    if how.startswith("exit="):
        sys.exit(int(how.removeprefix("exit=")))
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segv":
        ctypes.string_at(0)
    if how == "hang":
        time.sleep(1000)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    who, _, rest = os.environ.get("FAIL", "").partition("@")
    at, _, how = rest.partition(":")
    is_first = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0" or "ALWAYS" in os.environ
    if os.environ.get("IGNORE_TERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.environ.get("CHILD"):
        subprocess.Popen(["sleep", "1000"])
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8) * (rank + 1)).square().mean()
        loss.backward()
        if is_first and who == str(rank) and step == int(at):
            fail(how)
        optimizer.step()
        time.sleep(PAUSE_S)
    sys.stdout.write(f"rank {rank} ends with loss {loss.item():.17g}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
