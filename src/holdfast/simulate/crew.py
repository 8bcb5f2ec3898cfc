"""Which stage every live worker serves, as far as strategies that re-route micro-batches care."""

from __future__ import annotations

from collections.abc import Iterable


class Crew:
    """Live workers and their stages."""

    def __init__(self, *, pp: int, live: Iterable[int]) -> None:
        self.pp = pp
        self._stage_of = dict.fromkeys(sorted(live), 0)
        self.deal()

    @property
    def live(self) -> tuple[int, ...]:
        """How many serve each stage."""
        stages = list(self._stage_of.values())
        return tuple(stages.count(stage) for stage in range(self.pp))

    @property
    def is_whole(self) -> bool:
        """Whether every stage has somebody, so that nothing of the model is lost."""
        return min(self.live) > 0

    def deal(self) -> None:
        """Start anew: everyone takes a role, in turn."""
        self._stage_of = {worker: index % self.pp for index, worker in enumerate(sorted(self._stage_of))}

    def leave(self, workers: Iterable[int]) -> None:
        """Take workers away."""
        for worker in workers:
            del self._stage_of[worker]

    def come(self, workers: Iterable[int]) -> None:
        """Add workers, each where the fewest are: it has to copy a stage's state anyway."""
        for worker in workers:
            live = self.live
            self._stage_of[worker] = live.index(min(live))

    def move(self, moves: Iterable[tuple[int, int]]) -> None:
        """Let one worker of a stage take a role at another, for each pair of stages."""
        for stage, to in moves:
            worker = next(worker for worker, at in self._stage_of.items() if at == stage)
            self._stage_of[worker] = to
