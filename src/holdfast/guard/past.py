"""What the hosts and links of a node counted in the last minutes, in little room.

A large job has ten thousand ranks, and what a second tells of each is some kilobytes as objects. Looks are
kept as bytes, all of the last seconds and ever fewer of those before: how exactly the beginning of a window
has to be hit depends on how long ago it was.
"""

from __future__ import annotations

from collections import deque

import msgspec

from holdfast.detect.counters import Sample
from holdfast.detect.links import LinkSnapshot
from holdfast.guard.batches import Batch

DENSE_S = 30.0
"""Every look of so many seconds is kept."""
SPARSE_S = 10.0
"""Of those before, one in so many seconds."""
OLDEST_S = 180.0


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at a node has told."""

    sample: Sample
    links: list[LinkSnapshot]


class Past:
    """The looks at one node."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, bytes]] = deque()
        self._sparse: deque[tuple[float, bytes]] = deque()
        """Those that are longer ago."""

    def add(self, batch: Batch) -> None:
        """Take in a look; they come in order."""
        at_s = batch.sample.at_s
        self._looks.append((at_s, _ENCODER.encode(Look(sample=batch.sample, links=batch.links))))
        while self._looks[0][0] < at_s - DENSE_S:
            old = self._looks.popleft()
            if not self._sparse or old[0] >= self._sparse[-1][0] + SPARSE_S:
                self._sparse.append(old)
        while self._sparse and self._sparse[0][0] < at_s - OLDEST_S:
            self._sparse.popleft()

    def between(self, since_s: float, until_s: float) -> tuple[Look, Look] | None:
        """Return the first and the last look of a time; None where there are not two."""
        inside = [data for at_s, data in (*self._sparse, *self._looks) if since_s <= at_s <= until_s]
        if len(inside) < 2:
            return None
        return _DECODER.decode(inside[0]), _DECODER.decode(inside[-1])


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Look)
