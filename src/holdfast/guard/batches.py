"""What the guard of a node knows after a second: the one format in which it reaches the controller.

The controller is the guard of node 0; its own node's batch does not travel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.detect.counters import Sample
from holdfast.detect.links import LinkSnapshot
from holdfast.diagnose.reduce import Known
from holdfast.guard.profileshere import NodeProfile, ProfilesHere
from holdfast.guard.questions import Questions
from holdfast.guard.rings import Rings
from holdfast.guard.sampler import Sampler
from holdfast.job.channels import read_channels
from holdfast.job.linkpage import LinkPageReader
from holdfast.telemetry import Ask, Channel, InCall, Lines, ProfileOrder, Step


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One node, one second; times are of the node's monotonic clock."""

    node: int
    host: str
    steps: list[Step]
    """Ended since the batch before, each rank's in order."""
    calls: dict[int, InCall]
    """What each rank is in the midst of."""
    sample: Sample
    links: list[LinkSnapshot]
    channels: dict[int, list[Channel]] = {}
    """Groups and peers of each rank."""
    answers: list[Lines] = []
    """To what was asked last."""
    profile: NodeProfile | None = None
    """What came of an order, once."""
    functions: dict[int, Known] = {}
    """What those functions are that somebody asked for."""


class Gatherer:
    """Makes the batches of this node, and passes on questions to its workers."""

    def __init__(
        self, folder: Path, rings: Rings, *, node: int, host: str, profiles: Path | None = None
    ) -> None:
        """Read what lies beside the rings; ``profiles`` is where this node keeps profiles, if anywhere."""
        self._folder = folder
        self._rings = rings
        self._node = node
        self._host = host
        self._sampler = Sampler(lambda: rings.pids)
        self._pages: dict[Path, LinkPageReader[LinkSnapshot]] = {}
        self._channels: dict[Path, tuple[int, int, list[Channel]]] = {}
        """With the time of the file and the rank."""
        self._questions = Questions(folder)
        self._profiles = ProfilesHere(folder, lambda: rings.pids, profiles or folder / "profiles")
        self._functions: dict[int, Known] = {}

    def gather(self, steps: Sequence[Step]) -> Batch:
        """Return what is known now, with the steps that have just been read."""
        functions, self._functions = self._functions, {}
        return Batch(
            node=self._node,
            host=self._host,
            steps=list(steps),
            calls=self._rings.in_calls(),
            sample=self._sampler.sample(),
            links=self._read_links(),
            channels=self._read_channels(),
            answers=self._questions.answers(),
            profile=self._profiles.look(),
            functions=functions,
        )

    def ask(self, ask: Ask) -> None:
        """Put a question to the workers of this node; its answers come with later batches."""
        self._questions.ask(ask)

    def profile(self, order: ProfileOrder) -> None:
        """Have the workers of this node profiled; what comes of it comes with a later batch."""
        self._profiles.order(order)

    def name_functions(self, numbers: list[int]) -> None:
        """Say with the next batch what some functions of the last profile are."""
        self._functions |= self._profiles.functions(numbers)

    def _read_channels(self) -> dict[int, list[Channel]]:
        paths = set(self._folder.glob("channels_*.json"))
        for path in self._channels.keys() - paths:  # Its worker is long gone.
            del self._channels[path]
        for path in paths:
            # A file that is gone, or is none of ours, tells nothing.
            with contextlib.suppress(OSError, ValueError):
                version = path.stat().st_mtime_ns
                if self._channels.get(path, (0, 0, []))[0] != version:
                    rank = int(path.stem.removeprefix("channels_"))
                    self._channels[path] = version, rank, list(read_channels(path).values())
        return {rank: channels for _, rank, channels in self._channels.values()}

    def _read_links(self) -> list[LinkSnapshot]:
        found = []
        paths = sorted(self._folder.glob("links_*.page"))
        for path in self._pages.keys() - set(paths):
            self._pages.pop(path).close()
        for path in paths:
            # A page that cannot be read (its writer is just starting, or is gone) tells nothing.
            with contextlib.suppress(OSError, ValueError):
                snapshot = self._page(path).read()
                if snapshot is not None:
                    found.append(snapshot)
        return found

    def _page(self, path: Path) -> LinkPageReader[LinkSnapshot]:
        known = self._pages.get(path)
        if known is not None and known.inode == path.stat().st_ino:
            return known
        if known is not None:
            known.close()
        self._pages[path] = LinkPageReader(path, LinkSnapshot)
        return self._pages[path]
