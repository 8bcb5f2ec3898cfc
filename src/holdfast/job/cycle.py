"""What a step is, in a job that does not say: the repeating cycle of loader and optimizer calls.

EROICA's rule made exact. The calls are symbols; a step ends with the rarest optimizer of the cycle that they
repeat (``beats.py``), so several optimizers, accumulated gradients and batches of an evaluation do not fool
it; a step whose optimizer was not called, as after an overflow, ends where its loader goes on. Before a cycle
is known, a step ends with the optimizer that was called first.
"""

from __future__ import annotations

from holdfast.job.beats import REPEATS, Beat, find_beat

MEMORY = 256
"""Calls that are remembered; a cycle has at most a third as many."""
_LONGEST = MEMORY // REPEATS
_LOST = 200
"""Calls of one optimizer without the end of a step, after which it is taken to end it (EROICA's K)."""
_FIRST_LOOK = 8
"""Calls before a cycle is looked for; half as many more before each next time, since a look is dear."""
_DOUBTFUL, _HOPELESS = 8, 32
"""So much doubt, and a cycle is looked for anew; its batches are no longer counted on."""


class Cycle:
    """Takes in calls and says when a step has ended; optimizers are positive symbols, loaders negative."""

    def __init__(self) -> None:
        self.number = 0
        """One more whenever a step is taken to be something else than before."""
        self.is_foreign = False
        """Whether the step that goes on read from a loader that is not the cycle's."""
        self._beat: Beat | None = None
        self._gone: set[int] = set()
        self._recent: list[int] = []
        self._pause = self._until_look = _FIRST_LOOK
        self._doubt = 0
        self._has_stranger = False
        self._counts_batches = True
        # Since a step ended: calls of the leader, batches of its loader, calls of the first other optimizer.
        self._called = self._batches = self._since = self._other = 0
        self._run = 0
        # A loop that fetches one batch ahead has one more before the first update of an epoch.
        self._is_ahead: bool | None = None
        self._more = 0
        self._is_exhausted = self._is_updated = self._is_skipping = False

    def is_own(self, symbol: int) -> bool:
        """Say whether a loader is one that the usual steps read from, as far as that is known."""
        beat = self._beat
        return beat is None or not beat.known or symbol in beat.known

    # --- loaders ------------------------------------------------------------------------------

    def mark_epoch(self, symbol: int) -> None:
        """Take in that a loader begins anew: batches that no update followed are left over."""
        if self._beat is None or symbol != self._beat.loader:
            return
        if self._is_exhausted:
            self._is_ahead = self._is_updated
        self._is_exhausted = False
        self._batches = 0
        self._more = 0 if self._is_ahead is False else 1

    def mark_batch(self, symbol: int) -> bool:
        """Take in that a batch is asked for; return whether a step was skipped that ends before it."""
        self._run += 1
        self._until_look -= 1
        if self._run <= _LONGEST:  # More in a row are an evaluation: they must not drown the rest.
            self._remember(symbol)
        beat = self._beat
        if beat is None or symbol != beat.loader:
            if not self.is_own(symbol):
                self.is_foreign = True
                self._meet_stranger()
            return False
        self._batches += 1
        if self._batches <= beat.batches + self._more:
            return False
        if not self._is_skipping:  # A burst of overflows is one.
            self._doubt += 3
        self._end()
        self._batches = 1
        self._is_skipping = True
        return True

    def mark_exhausted(self, symbol: int) -> None:
        """Take in that the batch which was asked for last is not there: its loader is at the end."""
        if self._recent and self._recent[-1] == symbol:
            self._recent.pop()
        if self._beat is not None and symbol == self._beat.loader:
            self._batches = max(0, self._batches - 1)
            self._is_exhausted, self._is_updated = True, False

    # --- optimizers ---------------------------------------------------------------------------

    def mark_update(self, symbol: int) -> bool:
        """Take in an optimizer's call; return whether a step ends with it."""
        self._remember(symbol)
        self._until_look -= 1
        self._run = 0
        self._is_updated = True
        self._gone.discard(symbol)
        beat = self._expect(symbol)
        if symbol != beat.leader:
            self._other = self._other or symbol
            self._since += symbol == self._other
            return False
        self._called += 1
        if self._called < beat.every:
            return False
        self._weigh(beat)
        self._end()
        self._is_skipping = False
        return True

    def forget(self, symbol: int) -> None:
        """Take in that an optimizer is gone; another one may get its symbol."""
        self._gone.add(symbol)

    def _expect(self, symbol: int) -> Beat:
        """Return what a step is, now that this optimizer was called."""
        beat = self._beat
        if beat is None or beat.leader in self._gone or self._since > _LOST:
            self._gone.clear()
            self._change(Beat(leader=symbol))
        elif beat.known and symbol not in beat.known:
            self._meet_stranger()
        if self._until_look <= 0 and self._has_reason():
            self._look()
        assert self._beat is not None
        return self._beat

    def _meet_stranger(self) -> None:
        if not self._has_stranger:  # It has to come a few times before it can be part of a cycle.
            self._has_stranger = True
            self._until_look = max(self._until_look, 2 * REPEATS)

    def _has_reason(self) -> bool:
        assert self._beat is not None
        return not self._beat.known or self._has_stranger or self._doubt >= _DOUBTFUL

    # --- a better idea ------------------------------------------------------------------------

    def _weigh(self, beat: Beat) -> None:
        """Believe in the cycle a little more after a step that was like it, less after one that was not."""
        is_fewer = self._batches < beat.batches and not self._is_exhausted
        self._doubt = self._doubt + 2 if is_fewer else max(0, self._doubt - 1)
        if self._doubt >= _HOPELESS:
            self._counts_batches = False
            self._beat, self._doubt = beat.without_batches(), 0

    def _end(self) -> None:
        self._called = self._batches = self._since = self._other = self._more = 0

    def _remember(self, symbol: int) -> None:
        self._recent.append(symbol)
        if len(self._recent) >= 2 * MEMORY:
            del self._recent[:MEMORY]

    def _change(self, beat: Beat) -> None:
        """Go on with another idea of a step, and look for a better one soon."""
        self._beat = beat
        self.number += 1
        self._end()
        self._doubt, self._has_stranger, self._counts_batches = 0, False, True
        self._pause = self._until_look = _FIRST_LOOK

    def _look(self) -> None:
        self._pause = min(self._pause * 3 // 2, MEMORY // 2)
        self._until_look = self._pause
        before, found = self._beat, find_beat(self._recent[-MEMORY:])
        assert before is not None
        if found is not None and not self._counts_batches:
            found = found.without_batches()
        if found is not None and found.is_like(before):
            self._beat, self._doubt, self._has_stranger = found, self._doubt // 2, False
            self._pause = self._until_look = _FIRST_LOOK
        elif found is not None:
            # The leader may have been called already in the step that goes on, but that is another step now.
            self._change(found)
