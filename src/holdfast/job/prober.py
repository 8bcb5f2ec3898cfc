"""Test the compute and the links of some ranks between two steps, without the job's own groups.

A group of our own is used, because one rank that stays away from a collective of the user's group ends the
job. Whatever goes wrong, the rank goes on training when the order's time-out and ``GRACE_S`` are over. Links
are tested with messages from one host's memory to another's, over gloo.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, Store

from holdfast.job.orders import Due, LinkTime, Outcome, ProbeOrder, ProbeResult, write_result

GEMM_SIZE = {True: 2048, False: 640}
"""Rows of the square matrices, by whether there is an accelerator; one product takes a core about 5 ms."""
GRACE_S = 0.25
"""For a store that answers at the last moment."""
THREAD = "holdfast-probe"
PREFIX = "holdfast/probe"

T = TypeVar("T")


class _GivenUpError(Exception):
    """The probe ends here; the message says why."""


def obey(due: Due, folder: Path, *, rank: int) -> None:
    """Carry out an order and lay the result into the folder; nothing of it reaches the training."""
    with contextlib.suppress(Exception):  # A result that cannot be written counts as none.
        result = run_probe(due.order, rank, default_store(), is_late=due.is_late)
        write_result(folder, result)


def default_store() -> Store | None:
    """Return the store of the user's job, None where it has none."""
    from torch.distributed import distributed_c10d

    if not torch.distributed.is_initialized():
        return None
    store: Store | None = distributed_c10d._get_default_store()
    return store


def run_probe(order: ProbeOrder, rank: int, store: Store | None, *, is_late: bool = False) -> ProbeResult:
    """Run an order's tests at the agreed step, or call it off where that step is over; never raise."""
    probe = _Probe(order, rank)
    outcome, error = probe.attempt(store, is_late=is_late)
    return ProbeResult(
        rank=rank, order=order.id, outcome=outcome, gemm_s=probe.gemm_s, links=probe.links, error=error
    )


class _Probe:
    """One rank's part in an order, and what it has timed so far."""

    def __init__(self, order: ProbeOrder, rank: int) -> None:
        self.gemm_s: list[float] = []
        self.links: list[LinkTime] = []
        self._order = order
        self._rank = rank
        self._until_s = time.monotonic() + order.timeout_s

    def attempt(self, store: Store | None, *, is_late: bool) -> tuple[Outcome, str | None]:
        """Return how it ended, and why if it is not done."""
        try:
            return self._run(store, is_late=is_late)
        except Exception as error:
            # Of the error only the text is kept: its traceback would keep the group, and so its sockets.
            return "no_answer", _first_line(error)

    def _run(self, store: Store | None, *, is_late: bool) -> tuple[Outcome, str | None]:
        if store is None:
            raise _GivenUpError("the job has no store")
        if any(thread.name == THREAD for thread in threading.enumerate()):
            raise _GivenUpError("an earlier probe still waits for the store")
        own, word = self._in_time("the store", lambda: self._agree(store, "no" if is_late else "go"))
        if is_late:
            return "no_go", f"came after step {self._order.at_step}, when the word was {word!r}"
        if word != "go":
            return "no_go", "another rank came too late"
        if "gemm" in self._order.kinds:
            self._time_gemm()
        if "links" in self._order.kinds and self._partners():
            group = self._in_time("the group", lambda: self._connect(own))
            self._time_links(group)
        return "done", None

    def _agree(self, store: Store, word: str) -> tuple[Store, str]:
        """Write the word unless there is one, and return a store of our own with the word that counts."""
        # A clone has a connection and a time-out of its own: the user's store is left alone.
        own = PrefixStore(f"{PREFIX}/{self._order.id}", store.clone())  # type: ignore[attr-defined]
        own.set_timeout(timedelta(seconds=self._order.timeout_s))
        return own, own.compare_set("go", "", word).decode()

    def _connect(self, own: Store) -> Any:
        ranks = self._order.ranks
        left = self._left()
        own.set_timeout(left)
        return ProcessGroupGloo(own, ranks.index(self._rank), len(ranks), left)

    def _in_time(self, what: str, action: Callable[[], T]) -> T:
        """Return what the action returns, unless it takes too long: then it is left to itself.

        A store whose host is stopped answers never, whatever its time-out, and a dead one's cannot be cloned
        until the user's own time-out is over; so none of it happens in the training's thread.
        """
        self._left()
        done: list[T] = []
        errors: list[str] = []

        def run() -> None:
            try:
                done.append(action())
            except Exception as error:
                errors.append(_first_line(error))

        thread = threading.Thread(target=run, name=THREAD, daemon=True)
        thread.start()
        thread.join(max(0.0, self._until_s - time.monotonic()) + GRACE_S)
        if done:
            return done.pop()
        reason = errors[0] if errors else f"no answer within {self._order.timeout_s:g} s"
        raise _GivenUpError(f"{what}: {reason}")

    def _time_gemm(self) -> None:
        """Time a product of two matrices; nothing random, and nothing of the user's settings is changed."""
        device, synchronise = _device()
        size = GEMM_SIZE[device.type != "cpu"]
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            left = torch.full((size, size), 0.5, dtype=torch.float32, device=device)
            out = torch.empty_like(left)
            for number in range(self._order.repeats + 1):
                self._left()
                synchronise()
                started_s = time.perf_counter()
                torch.mm(left, left, out=out)
                synchronise()
                if number > 0:  # The first one also loads the kernel.
                    self.gemm_s.append(time.perf_counter() - started_s)

    def _partners(self) -> list[tuple[int, tuple[int, int]]]:
        """Return the links that this rank is an end of, each with its pass."""
        passes = enumerate(self._order.passes)
        return [(number, pair) for number, pairs in passes for pair in pairs if self._rank in pair]

    def _time_links(self, group: Any) -> None:
        buffer = torch.zeros(self._order.size_bytes, dtype=torch.uint8, device="cpu")
        for number, (source, target) in self._partners():
            is_sender = self._rank == source
            move = group.send if is_sender else group.recv
            peer = self._order.ranks.index(target if is_sender else source)
            times_s: list[float] = []
            for repeat in range(self._order.repeats + 1):
                started_s = time.perf_counter()
                move([buffer], peer, number).wait(self._left())
                # The first one also waits until the partner is here; gloo sends the data of the others as
                # soon as both ends have asked for it.
                if repeat > 0:
                    times_s.append(time.perf_counter() - started_s)
            self.links.append(LinkTime(source=source, target=target, times_s=times_s))

    def _left(self) -> timedelta:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise _GivenUpError(f"not through within {self._order.timeout_s:g} s")
        return timedelta(milliseconds=max(1, round(1000 * left_s)))  # To gloo, 0 is for ever.


def _device() -> tuple[torch.device, Callable[[], None]]:
    """Return where to compute, and how to wait until it is done."""
    if torch.accelerator.is_available():
        device = torch.accelerator.current_accelerator()
        assert device is not None
        return device, torch.accelerator.synchronize
    return torch.device("cpu"), lambda: None


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    name = "" if isinstance(error, _GivenUpError) else f"{type(error).__name__}: "
    return f"{name}{text[0] if text else ''}"[:300]
