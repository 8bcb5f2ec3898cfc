"""A worker of a job that survives deaths, without any training: it joins the hub and waits for others to die.

Files in the folder ``FOLDER`` tell it what to do: ``finish`` ends it well, ``raise`` makes rank ``BAD``
raise an error.
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

from holdfast.job.lastwords import say_survives
from holdfast.job.messages import HUB_ENV, TOKEN_ENV, Bye, Void, Want
from holdfast.membership import Regroup, Stop
from hubclient import Client, make_hello

FOLDER = Path(os.environ["FOLDER"])
RANK = int(os.environ["RANK"])
PP = int(os.environ.get("PP", "1"))
IS_BAD = os.environ.get("BAD") == str(RANK)


def main() -> None:
    """Join, and go from generation to generation."""
    token = os.environ[TOKEN_ENV]
    sys.stdout.write(f"token {token}\n")
    if IS_BAD and os.environ.get("EARLY") == os.environ["TORCHELASTIC_RESTART_COUNT"]:
        sys.exit(3)
    dp = int(os.environ["WORLD_SIZE"]) // PP
    client = Client(int(os.environ[HUB_ENV].rpartition(":")[2]), make_hello(RANK, dp=dp, pp=PP, token=token))
    client.report(-1)
    regroup = client.decision()
    assert say_survives()
    while isinstance(regroup, Regroup):
        (FOLDER / f"rank {RANK} in {regroup.generation}").touch()
        if is_finished(client, regroup.generation):
            client.send(Bye())
            return
        client.report(regroup.generation)
        regroup = client.decision()
    assert isinstance(regroup, Stop)
    raise RuntimeError(regroup.reason)


def is_finished(client: Client, generation: int) -> bool:
    """Return when there is nothing more to do, or another member is gone: then what it wants is void."""
    client.send(Want(generation=generation, key="what nobody puts"))
    while not select.select([client.socket], [], [], 0.05)[0]:
        if (FOLDER / "finish").exists():
            return True
        if IS_BAD and (FOLDER / "raise").exists():
            raise ValueError("the input is broken")
    assert isinstance(client.hear(), Void)
    return (FOLDER / "finish").exists()


main()
