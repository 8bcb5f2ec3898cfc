"""A process that has imported torch and waits to become a worker, so that one that died is back sooner.

``holdfast run --rejoin`` keeps one on each node. What it is to be comes as one line of JSON on its standard
input; from then on it is a worker like any other. It has run nothing of the user's until then, and has not
touched a device.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys

import msgspec

from holdfast.job.boot import LAUNCHER_ENV
from holdfast.job.deathsig import die_with_parent

_WARM = (
    "torch",
    "torch.distributed",
    "torch.utils.data",
    "torch._dynamo",  # Half a second, which the first optimizer would pay for.
    "holdfast.job.pipeline",
)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What to become."""

    module: str
    """Of ours, with a ``main`` that takes the arguments."""
    argv: list[str]
    env: dict[str, str]


_CALL = msgspec.json.Decoder(Call)


def main() -> int:
    """Wait for the call and follow it; end when none can come any more."""
    launcher = os.environ.get(LAUNCHER_ENV, "")
    if launcher.isdecimal():
        die_with_parent(int(launcher))
    for name in _WARM:
        with contextlib.suppress(Exception):  # The script will say it, if it wants that module at all.
            importlib.import_module(name)
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return 0
    call = _CALL.decode(line)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(call.env)
    code: int = importlib.import_module(call.module).main(call.argv)
    return code


if __name__ == "__main__":
    sys.exit(main())
