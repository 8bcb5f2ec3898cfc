"""Where the workers of ``survivor.py`` are told what to do, and tell how far they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from runs import wait_until

SURVIVOR = Path(__file__).with_name("survivor.py")


class Scene:
    """A folder that all workers look into."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "scene"
        self._folder.mkdir()

    def flags(self, workers: int, *more: str) -> tuple[str, ...]:
        """Return the command line of a launcher."""
        return ("--nproc-per-node", str(workers), *more, str(SURVIVOR))

    def env(self, **more: str) -> dict[str, Any]:
        """Return the variables of a launcher."""
        paths = [str(SURVIVOR.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"FOLDER": str(self._folder), "PYTHONPATH": os.pathsep.join(paths)} | more

    def wait_for(self, ranks: list[int], *, generation: int) -> None:
        """Return when these workers have arrived in the generation."""
        marks = [self._folder / f"rank {rank} in {generation}" for rank in ranks]
        wait_until(lambda: all(mark.exists() for mark in marks), 60)

    def forget(self) -> None:
        """Forget who has arrived where."""
        for mark in self._folder.iterdir():
            mark.unlink()

    def tell(self, word: str) -> None:
        """Let all workers know it."""
        (self._folder / word).touch()

    def finish(self) -> None:
        """Let all workers end well."""
        self.tell("finish")
