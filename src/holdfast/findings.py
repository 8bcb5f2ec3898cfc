"""What the pure rooms find out about a job; also the JSON of ``detect`` and ``diagnose``."""

from __future__ import annotations

from typing import Literal

import msgspec

Direction = Literal["slow", "relief"]


class ChangePoint(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a job take longer than before, or no longer do."""

    step: int
    """The first step of the new level."""
    detected_step: int
    """The step after which that was known."""
    before_s: float
    after_s: float
    direction: Direction
    is_slow: bool
    """Whether the job is slow after it: it may have got slower still, or only a little faster."""
    confidence: float
    """Probability that the change is more than jitter."""


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """A time during which a job was slow."""

    start: int
    end: int | None
    """The first step that was not slow; None: it still is."""
    slowdown: float
    """Step time over the healthy one; the mean over the episode."""


SuspectKind = Literal["rank", "host", "link", "function"]
Cause = Literal[
    "compute",
    "cpu_contention",
    "link",
    "data_loading",
    "storage",
    "garbage_collection",
    "host_memory",
    "input_imbalance",
    "stage_imbalance",
    "hang",
    "death",
    "unknown",
]


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """Who is to blame, and why; several ranks in one suspect are told apart by nothing that was seen."""

    kind: SuspectKind = "rank"
    ranks: list[int]
    hosts: list[str] = []
    link: tuple[int, int] | None = None
    """The ranks at its ends."""
    function: str | None = None
    cause: Cause = "unknown"
    slowdown: float | None = None
    """Time with the fault over time without it; None: it is not slow, or not known."""
    cost_s: float | None = None
    """What it cost the job so far."""
    confidence: float
    """Probability that it is to blame."""
    victims: list[int] = []
    """Ranks that wait for it."""
    evidence: list[str] = []
    """Sentences."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.confidence <= 1.0:
            raise ValueError(f"confidence is {self.confidence}, expected 0 to 1")
