"""Flags for a launcher that ``srun`` started: a pure reading of ``SLURM_*``.

One launcher per node is assumed (``srun --ntasks-per-node=1 holdfast run train.py``). Outside a job step,
on one node, or where the person gave rendezvous flags, Slurm has no say.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from holdfast.errors import InputError

_FIRST_PORT = 20_000
_PORTS = 12_000
"""Up to where Linux begins to hand out ports to outgoing connections."""
RENDEZVOUS_FLAGS = frozenset(
    {"nnodes", "standalone", "rdzv_backend", "rdzv_endpoint", "master_addr", "master_port", "node_rank"}
)


def slurm_flags(env: Mapping[str, str], given: Collection[str]) -> list[str]:
    """Return the torchrun flags that the job step implies, none where a person decided already."""
    nodes = _number(env, "SLURM_STEP_NUM_NODES", "SLURM_NNODES", default=1)
    if "SLURM_STEP_ID" not in env or nodes < 2 or RENDEZVOUS_FLAGS & set(given):
        return []
    tasks = _number(env, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", default=nodes)
    if tasks != nodes:
        raise InputError(
            f"srun started {tasks} launchers on {nodes} nodes, expected one per node: "
            f"use srun --ntasks={nodes} --ntasks-per-node=1"
        )
    job = _number(env, "SLURM_JOB_ID")
    hosts = expand_hosts(env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or "")
    if not hosts:
        raise InputError("SLURM_JOB_NODELIST is not set, expected a list of nodes such as a[1-2]")
    return [
        f"--nnodes={nodes}",
        f"--node-rank={_number(env, 'SLURM_NODEID')}",
        f"--master-addr={hosts[0]}",
        # The step's number too: two steps of one job may run side by side.
        f"--master-port={_FIRST_PORT + (job * 7 + _step(env)) % _PORTS}",
        f"--rdzv-id=slurm-{job}-{env['SLURM_STEP_ID']}",
    ]


def expand_hosts(text: str) -> list[str]:
    """Return the hosts of a Slurm node list such as ``a[01-03,7],b``."""
    hosts: list[str] = []
    for item in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        hosts += _expand_item(item)
    return hosts


def _expand_item(item: str) -> list[str]:
    match = re.fullmatch(r"(.*?)\[([^\]]*)\](.*)", item)
    if match is None:
        return [item]
    before, ranges, after = match.groups()
    names = []
    for part in ranges.split(","):
        low, _, high = part.partition("-")
        if not re.fullmatch("[0-9]+", low) or not re.fullmatch("[0-9]*", high):
            raise InputError(f"node list {item!r} has {part!r}, expected a range such as 01-04")
        numbers = range(int(low), int(high or low) + 1)
        names += [f"{before}{number:0{len(low)}d}{after}" for number in numbers]
    return [host for name in names for host in _expand_item(name)]


def _number(env: Mapping[str, str], *names: str, default: int | None = None) -> int:
    for name in names:
        text = env.get(name) or ""
        if re.fullmatch("[0-9]+", text):
            return int(text)
        if text:
            raise InputError(f"{name} is {text!r}, expected a number")
    if default is None:
        raise InputError(f"{names[0]} is not set, expected a number: give the rendezvous flags yourself")
    return default


def _step(env: Mapping[str, str]) -> int:
    text = env["SLURM_STEP_ID"]
    return int(text) if re.fullmatch("[0-9]+", text) else 0
