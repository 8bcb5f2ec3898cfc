"""Where the seconds of the wall clock go, as a strategy's responses say: each into exactly one account."""

from __future__ import annotations

import msgspec

from holdfast.simulate.strategies.base import Response


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time went, in seconds of the wall clock."""

    computing_s: float = 0.0
    """Work that counts."""
    failure_pause_s: float = 0.0
    join_pause_s: float = 0.0
    checkpointing_s: float = 0.0
    lost_s: float = 0.0
    """Work that had to be done again."""
    stopped_s: float = 0.0
    """Waiting, because there were too few workers."""

    @property
    def total_s(self) -> float:
        return float(sum(msgspec.structs.astuple(self)))


class Pace:
    """Spends time as the last response says: first on pauses, then on units of work and what follows each."""

    def __init__(self, response: Response) -> None:
        self.samples = 0.0
        self._accounts = dict.fromkeys(Spent.__struct_fields__, 0.0)
        self._response = response
        self._pauses: list[tuple[str, float]] = []
        self._now_s = 0.0
        self._saved = (0.0, 0.0)
        """Computing time and samples at the last hourly checkpoint."""
        self._into_s = self._skipped_s = 0.0
        """How far the present unit has come, writing included, and how much of that was skipped."""
        self._units = 0
        """How many were finished since the last response."""
        self._begin(response)

    @property
    def spent(self) -> Spent:
        return Spent(**self._accounts)

    @property
    def pause_s(self) -> float:
        """How long training still stands still."""
        return sum(seconds for _, seconds in self._pauses)

    @property
    def shown(self) -> float:
        """Samples/s once the pauses are over, checkpoints included."""
        unit_s, write_s = self._response.unit_s, self._response.write_s
        return self._response.throughput * unit_s / (unit_s + write_s)

    def save(self) -> None:
        """Remember this moment as the hourly checkpoint."""
        self._saved = (self._accounts["computing_s"], self.samples)

    def pass_until(self, now_s: float) -> None:
        """Account for the time that has passed."""
        left_s = now_s - self._now_s
        self._now_s = now_s
        while self._pauses and left_s > 0:
            account, pause_s = self._pauses[0]
            taken_s = min(left_s, pause_s)
            self._accounts[account] += taken_s
            left_s -= taken_s
            self._pauses[0] = (account, pause_s - taken_s)
            if taken_s == pause_s:
                self._pauses.pop(0)
        if self._response.throughput > 0:
            self._work(left_s)
        else:
            self._accounts["stopped_s"] += left_s
        self._check()

    def answer(self, response: Response) -> None:
        """Take back what is lost, and go on as the response says; a pause that is cut short begins again."""
        if response.loses == "unit":
            self._take_back(self._unfinished_s())
        elif response.loses == "step":
            self._take_back(self._response.unit_s / 2 if self._units else self._unfinished_s())
        elif response.loses == "checkpoint":
            computing_s, samples = self._saved
            self._accounts["lost_s"] += self._accounts["computing_s"] - computing_s
            self._accounts["computing_s"], self.samples = computing_s, samples
        pauses = [
            ("checkpointing_s", response.checkpoint_s),
            ("failure_pause_s", response.failure_s),
            ("join_pause_s", response.join_s),
        ]
        missing_s = self.pause_s - sum(seconds for _, seconds in pauses)
        if missing_s > 0:  # What was going on takes longer than what is new.
            pauses.append((self._pauses[-1][0], missing_s))
        self._pauses = [pause for pause in pauses if pause[1] > 0]
        self._begin(response)
        self._check()

    def _begin(self, response: Response) -> None:
        self._response = response
        first_s = response.unit_s if response.first_s is None else response.first_s
        self._into_s = self._skipped_s = response.unit_s - first_s
        self._units = 0

    def _work(self, seconds: float) -> None:
        unit_s, write_s = self._response.unit_s, self._response.write_s
        before_s = min(self._into_s, unit_s)
        units, self._into_s = divmod(self._into_s + seconds, unit_s + write_s)
        self._units += int(units)
        computing_s = units * unit_s + min(self._into_s, unit_s) - before_s if write_s else seconds
        self._accounts["computing_s"] += computing_s
        self._accounts["checkpointing_s"] += seconds - computing_s
        self.samples += computing_s * self._response.throughput

    def _unfinished_s(self) -> float:
        """Computing time since the last point that a failure goes back to."""
        skipped_s = 0.0 if self._units else self._skipped_s
        return min(self._into_s, self._response.unit_s) - skipped_s

    def _take_back(self, seconds: float) -> None:
        self._accounts["computing_s"] -= seconds
        self._accounts["lost_s"] += seconds
        self.samples -= seconds * self._response.throughput

    def _check(self) -> None:
        """The ledger agrees with the clock, after every event."""
        total_s = sum(self._accounts.values())
        slack_s = 1e-6 * max(1.0, self._now_s)
        assert abs(total_s - self._now_s) <= slack_s, f"{total_s} s accounted for, expected {self._now_s} s"
        assert min(self._accounts.values()) >= -slack_s, f"an account is negative: {self._accounts}"
        assert self.samples >= -slack_s, f"{self.samples} samples"
