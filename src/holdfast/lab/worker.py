"""A worker of the lab: ``python -m holdfast.lab.worker SCRIPT …`` (or ``-m MODULE …``).

Installs the saboteur and the recorder where HOLDFAST_LAB names a folder, then boots as any watched worker.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from holdfast.job import boot
from holdfast.job.place import find_place
from holdfast.lab.beat import Beat
from holdfast.lab.control import LAB_ENV
from holdfast.lab.recorder import Recorder
from holdfast.lab.saboteur import Saboteur


def main(argv: list[str]) -> int:
    """Run a script under the lab and return the exit code of the process."""
    folder = os.environ.get(LAB_ENV)
    if folder:
        install(Path(folder), rank=find_place(os.environ).rank)
    return boot.main(argv)


def install(folder: Path, *, rank: int) -> None:
    """Install saboteur and recorder; the saboteur comes first, so that what it does is recorded."""
    beat = Beat()
    Saboteur(folder, rank=rank, beat=beat).install()
    Recorder(folder, rank=rank, beat=beat).install()
    beat.install()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
