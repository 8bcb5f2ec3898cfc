"""Plans that are ready before they are needed, made by a process of low priority beside the hub.

After every plan that is asked for, those for what may happen next are made. Where one is needed that is not
there yet, it is made at once, as ever. Where somebody is missing, it is also found out whether the others had
better change places.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import IO

import msgspec

from holdfast.plan.ahead import likely
from holdfast.plan.choose import EFFORT, choose
from holdfast.plan.ops import Schedule, parse_schedule
from holdfast.plan.planner import make_plan
from holdfast.plan.problem import Problem

MOST = 4096
"""Plans that are kept."""
MOST_OPERATIONS = 20_000_000
"""In all plans that are kept: a large job's are large."""
_NICE = 19


class Wish(msgspec.Struct, frozen=True):
    """A plan that is to be made."""

    problem: Problem
    fault_free: str
    migrates: bool = False
    """Not a schedule is wanted, but who had better take which place."""


_WISH = msgspec.json.Decoder(Wish)


class Made(msgspec.Struct, frozen=True):
    """One that has been; empty: there is none."""

    wish: Wish
    schedule: str = ""
    moves: list[tuple[int, int]] = []
    """From place to place, as numbers."""


_MADE = msgspec.json.Decoder(Made)


class Foresight:
    """Makes plans, and keeps those that may be needed; ``plan`` is called from one thread."""

    def __init__(self) -> None:
        self.was_ready = False
        """Whether the last plan that was asked for was there already."""
        self.on_advice: Callable[[Problem, list[tuple[int, int]]], None] | None = None
        """Called from another thread where it pays to change places; None: nobody asks."""
        self._ready: OrderedDict[Wish, str] = OrderedDict()
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        self._is_closed = False
        self._asked: set[Wish] = set()

    def plan(self, problem: Problem, fault_free: str) -> Schedule:
        """Return a schedule, as ``choose`` does."""
        wish = Wish(problem, fault_free)
        with self._lock:
            ready = self._ready.get(wish)
        self.was_ready = ready is not None
        schedule = parse_schedule(ready) if ready is not None else choose(problem, fault_free=fault_free)
        self._look_ahead(wish)
        return schedule

    def close(self) -> None:
        """End the process."""
        with self._sending:
            self._is_closed = True
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if self._listener is not None:
                self._listener.join()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # What was not read is not missed.
                        pipe.close()

    def _look_ahead(self, wish: Wish) -> None:
        room = min(MOST, MOST_OPERATIONS // _operations(wish.problem))
        with self._lock:
            known = {*self._ready, *self._asked}
        wishes = [
            Wish(each, wish.fault_free) for each, _ in zip(likely(wish.problem), range(room), strict=False)
        ]
        new = [each for each in wishes if each not in known]
        if self.on_advice is not None and any(0.0 in row for row in wish.problem.speeds):
            new.insert(0, Wish(wish.problem, wish.fault_free, migrates=True))
        # Nothing of it may hold up the workers that wait for their plan.
        threading.Thread(target=self._ask, args=(new, room), name="holdfast-ahead", daemon=True).start()

    def _ask(self, wishes: list[Wish], room: int) -> None:
        # Without the process plans are made when they are needed.
        with self._sending, contextlib.suppress(OSError, ValueError):
            if self._is_closed:
                return
            stdin = self._open(room)
            with self._lock:
                self._asked |= set(wishes)
            for wish in wishes:
                stdin.write(msgspec.json.encode(wish) + b"\n")
            stdin.flush()

    def _open(self, room: int) -> IO[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "holdfast.guard.foresight"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            with self._lock:
                self._asked = set()
            self._listener = threading.Thread(
                target=self._listen, args=(self._process.stdout, room), name="holdfast-plans", daemon=True
            )
            self._listener.start()
        assert self._process.stdin is not None
        return self._process.stdin

    def _listen(self, stdout: IO[bytes], room: int) -> None:
        for line in stdout:
            with contextlib.suppress(msgspec.MsgspecError):
                made = _MADE.decode(line)
                if made.moves and self.on_advice is not None:
                    self.on_advice(made.wish.problem, made.moves)
                with self._lock:
                    self._asked.discard(made.wish)
                    if made.schedule:
                        self._ready[made.wish] = made.schedule
                    while len(self._ready) > room:
                        self._ready.popitem(last=False)


def _operations(problem: Problem) -> int:
    return problem.dp * problem.pp * problem.microbatches * 3


def main() -> None:
    """Make plans as they are asked for, until nobody asks any more."""
    os.nice(_NICE)
    wishes: list[Wish] = []
    is_there = threading.Condition()

    def read() -> None:
        for line in sys.stdin.buffer:
            with is_there:
                wishes.append(_WISH.decode(line))
                is_there.notify()
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        with is_there:
            is_there.wait_for(lambda: bool(wishes))
            wish = wishes.pop(0)
        sys.stdout.buffer.write(msgspec.json.encode(make(wish)) + b"\n")
        sys.stdout.buffer.flush()


def make(wish: Wish) -> Made:
    """Return what was wished for; nothing where it cannot be had: whoever needs it will be told why."""
    pp = wish.problem.pp
    try:
        if not wish.migrates:
            return Made(wish, str(choose(wish.problem, fault_free=wish.fault_free)))
        moves = make_plan(wish.problem, migrate=True, effort=EFFORT).moves
    except Exception:
        return Made(wish)
    pairs = [(move.worker, move.to) for move in moves]
    return Made(wish, moves=[(a.pipeline * pp + a.stage, b.pipeline * pp + b.stage) for a, b in pairs])


if __name__ == "__main__":
    main()
