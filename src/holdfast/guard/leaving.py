"""A node that is too slow leaves its job, and is kept from the next one where a scheduler can be told.

The others restart without it; a node that stands by takes its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

import psutil
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig

_PATIENCE_S = 20.0
_USUAL_PORT = 29400
"""Of torch's c10d rendezvous."""


class LeftOut(Exception):  # noqa: N818 - it is no error.
    """This node is no part of the job any more."""


def keeps_store(config: LaunchConfig) -> bool:
    """Say whether it is this process that keeps the store by which the nodes find each other."""
    if config.rdzv_backend != "c10d":
        return False
    # Torch does not tell: on one machine, several launchers may have wanted to.
    try:
        _, port = parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=_USUAL_PORT)
        mine = psutil.Process().net_connections(kind="tcp")
    except (ValueError, psutil.Error, OSError):  # Then nobody knows who has to stay, and nobody leaves.
        return False
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in mine)


def drain(reason: str, env: Mapping[str, str] = os.environ) -> str:
    """Ask the scheduler to give this node to nobody; return in one clause what came of it."""
    node, program = env.get("SLURMD_NODENAME"), shutil.which("scontrol", path=env.get("PATH"))
    if node is None or program is None:
        return "no scheduler to tell"
    command = [program, "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False, env=dict(env)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not drained: {error}"
    if result.returncode:
        return f"not drained: {_first_line(result.stderr or result.stdout) or result.returncode}"
    return f"{node} is drained"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
