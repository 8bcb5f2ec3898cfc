"""The guard: a process of its own beside the workers of a node, which watches, and ends who hangs.

It reads the rings, writes one summary row a second while steps are made, and notes what happened in the
event log. Workers with a status page are looked at more often. It may be killed at any moment. When its
launcher dies it notes that, ends what the workers left running, and goes.
"""

from __future__ import annotations

import os
import signal

_STOP = signal.SIGTERM
_PARENT_DIED = signal.SIGHUP

if __name__ == "__main__":
    # Before numpy is imported, which starts threads: one of them that does not block these would be given
    # them, and that ends a process. They are taken one by one in the loop: nothing cuts into a line.
    signal.pthread_sigmask(signal.SIG_BLOCK, {_STOP, _PARENT_DIED})
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Nor does the guard need any.

import argparse
import contextlib
import shutil
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from holdfast.errors import InputError
from holdfast.guard.batches import Gatherer
from holdfast.guard.duties import make_duty
from holdfast.guard.eventlog import EventLog, append_line, log_name
from holdfast.guard.exposing import add_metrics_flags, make_exposing
from holdfast.guard.judging import Bench
from holdfast.guard.levels import Allowed
from holdfast.guard.mitigating import Mitigation
from holdfast.guard.outside import Changeable, Outside, add_outside_flags
from holdfast.guard.probing import Precheck, Probing
from holdfast.guard.profiling import ProfileHabits
from holdfast.guard.reporting import add_flags, read_flags
from holdfast.guard.rings import Rings
from holdfast.guard.say import Say
from holdfast.guard.sessions import end_sessions
from holdfast.guard.watchdog import EVERY_S as LOOK_EVERY_S
from holdfast.guard.watchdog import Watchdog
from holdfast.job.deathsig import ask_for_death_signal
from holdfast.observe.eventlog import read_events
from holdfast.telemetry import Step, Summary
from holdfast.values import (
    AttemptEnded,
    AttemptStarted,
    GuardStarted,
    LauncherDied,
    Record,
    RunEnded,
    RunStarted,
    StepSeen,
)

_EVERY_S = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Watch until told to stop or until the parent is gone."""
    parser = argparse.ArgumentParser(prog="holdfast.guard.watcher", description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--rings", type=Path, required=True)
    parser.add_argument("--node", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--attached", action="store_true", help="the parent is a worker, not a launcher")
    parser.add_argument("--no-kill-hung", action="store_true", help="only note that a worker hangs")
    parser.add_argument("--probe", action="store_true", help="ranks may be stopped to be tested")
    parser.add_argument("--profile", action="store_true", help="profile all ranks when the job gets slow")
    parser.add_argument("--profile-every", type=int, default=0, help="profile all ranks every so many steps")
    parser.add_argument("--act", default="", help="what may be done about a slow job")
    add_flags(parser)
    add_outside_flags(parser)
    add_metrics_flags(parser)
    args = parser.parse_args(argv)
    if args.attached:
        args.no_kill_hung = args.no_kill_hung or not _may_kill()
    signal.pthread_sigmask(signal.SIG_BLOCK, {_STOP, _PARENT_DIED})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ask_for_death_signal(_PARENT_DIED)
    _Guard(args).watch()
    return 0


def _may_kill() -> bool:
    """Return the setting as a guard without a launcher finds it."""
    from holdfast.guard.home import RunSettings
    from holdfast.settings import load

    try:
        return load(RunSettings, table="run", env=os.environ, flags={})[0].kill_hung
    except InputError:  # Nobody is there to be told; what was meant may have been "off".
        return False


class _Guard:
    """One guard's life."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._parent: int = args.parent
        self._attached: bool = args.attached
        self._run_dir: Path = args.run_dir
        self._rings_folder: Path = args.rings
        self._rings = Rings(args.rings)
        self._say = Say()
        if self._attached:
            with contextlib.suppress(OSError):
                self._run_dir.mkdir(parents=True, exist_ok=True)
        self._log = EventLog(self._run_dir, node=args.node, host=socket.gethostname(), say=self._say)
        self._seen: set[tuple[int, int]] = set()
        self._watchdog = Watchdog(
            args.rings,
            tell=self._log.append,
            workers=lambda: running_workers(self._records()),
            kills=not args.no_kill_hung,
        )
        profiles = self._run_dir / "profiles"
        self._gatherer = Gatherer(
            args.rings, self._rings, node=args.node, host=socket.gethostname(), profiles=profiles
        )
        habits = ProfileHabits(folder=profiles, when_slow=args.profile, every_steps=args.profile_every)
        allowed = Allowed(self._run_dir, args.act)
        mitigation = Mitigation(args.rings, allowed=allowed, tell=self._log.append, say=self._say)
        allowed.on_change = mitigation.allow_again
        bench = Bench(
            dumps=self._run_dir / "flight_recorder",
            tell=self._log.append,
            say=self._say,
            probing=Probing(args.rings) if args.probe else None,
            precheck=Precheck(args.rings),
            profiles=habits,
            mitigation=mitigation,
        )
        self._duty = make_duty(read_flags(args, os.environ), self._gatherer, bench, node=args.node)
        parts = Changeable(watchdog=self._watchdog, habits=habits, mitigation=mitigation)
        self._outside = Outside(args, self._run_dir, self._log, parts, self._say)
        self._exposing = make_exposing(args, self._run_dir, self._say, os.environ)

    def watch(self) -> None:
        """Look until told to stop or alone; the last look at the rings is after that."""
        self._follow_on()
        self._log.append(GuardStarted(pid=os.getpid()))
        self._outside.open()
        if self._exposing is not None:
            self._exposing.start()
        is_last = self._look_on()
        if self._exposing is not None:
            self._exposing.close()
        self._outside.close(is_last=is_last)

    def _look_on(self) -> bool:
        """Look until told to stop; say whether nobody is left who could tell of the end of the run."""
        if os.getppid() != self._parent:  # It died before the kernel could be asked to tell us.
            self._look()
            self._outlive()
            return True
        while True:
            heard = self._pause()
            self._look()
            if heard is not None and heard.si_signo == _STOP:
                return False
            if heard is not None and self._is_parent_gone():
                self._outlive()
                return True

    def _pause(self) -> signal.struct_siginfo | None:
        """Wait for a signal or for a second to pass, with an eye on those who may hang."""
        over_s = time.monotonic() + _EVERY_S
        while (left_s := over_s - time.monotonic()) > 0:
            pause_s = min(left_s, LOOK_EVERY_S if self._watchdog.is_needed else self._duty.poll_s)
            heard = signal.sigtimedwait([_STOP, _PARENT_DIED], pause_s)
            if heard is not None:
                return heard
            self._watchdog.look(time.monotonic())
            self._duty.poll()
        return None

    def _follow_on(self) -> None:
        """Take over from a guard that died: what it has told is not told again."""
        records = self._records()
        self._watchdog.follow_on(record.event for record in records)
        if any(isinstance(record.event, GuardStarted) for record in records):
            self._watchdog.learn(self._rings.read())
        for record in records:
            self._log.attempt = record.stamp.attempt
            if isinstance(record.event, StepSeen):
                self._seen.add((record.stamp.attempt, record.event.rank))

    def _records(self) -> list[Record]:
        return records_of(self._run_dir / log_name(self._log.node), self._parent)

    def _is_parent_gone(self) -> bool:
        # The kernel speaks when the *thread* that started us ends: before the rest of a dying process, or
        # while the process lives on.
        deadline_s = time.monotonic() + 1.0
        while os.getppid() == self._parent and time.monotonic() < deadline_s:
            time.sleep(0.01)
        return os.getppid() != self._parent

    def _look(self) -> None:
        steps = self._rings.read()
        self._watchdog.learn(steps)
        self._watchdog.refresh()
        if steps:
            self._log.attempt = max(step.attempt for step in steps)
        self._outside.listen()
        self._inspect(steps)
        if not steps:
            return
        for step in steps:
            if (step.attempt, step.rank) not in self._seen:
                self._seen.add((step.attempt, step.rank))
                self._log.append(StepSeen(rank=step.rank, step=step.step))
        current = [step for step in steps if step.attempt == self._log.attempt]
        summary = summarise(current, node=self._log.node, attempt=self._log.attempt, lost=self._rings.lost)
        if self._exposing is not None:
            self._exposing.take(summary)
        try:
            append_line(self._run_dir / "summaries.jsonl", msgspec.json.encode(summary) + b"\n")
        except OSError as error:
            self._say.cannot_write(self._run_dir / "summaries.jsonl", error)

    def _inspect(self, steps: Sequence[Step]) -> None:
        """Look into the job's speed; whatever goes wrong there, hangs are still to be found and ended."""
        try:
            batch = self._gatherer.gather(steps)
            self._duty.take(batch, time.monotonic(), has_watchdog=self._watchdog.is_needed)
        except Exception as error:
            self._say.once("inspection", f"the guard cannot judge the job's speed: {error!r}")

    def _outlive(self) -> None:
        """Do what the dead launcher no longer can."""
        if self._attached:
            self._log.append(RunEnded(exit_code=None, reason="the watched process ended"))
        else:
            self._log.append(LauncherDied(pid=self._parent))
            end_sessions(running_workers(self._records()))
        shutil.rmtree(self._rings_folder, ignore_errors=True)


def summarise(steps: Sequence[Step], *, node: int, attempt: int, lost: int) -> Summary:
    """Reduce one second's steps of a node to one row."""
    last: dict[str, int] = {}
    times: dict[str, list[float]] = {}
    own: dict[str, list[float]] = {}
    for step in steps:
        last[str(step.rank)] = step.step
        if step.duration_s > 0:
            times.setdefault(str(step.rank), []).append(step.duration_s)
            own.setdefault(str(step.rank), []).append(step.own_s)
    return Summary(
        at=datetime.now(UTC).isoformat(),
        node=node,
        attempt=attempt,
        steps=last,
        duration_s={rank: round(statistics.median(values), 6) for rank, values in times.items()},
        own_s={rank: round(statistics.median(values), 6) for rank, values in own.items()},
        lost=lost,
    )


def running_workers(records: Sequence[Record]) -> list[int]:
    """Return the workers of the attempt that was going on, none where the log does not tell."""
    for record in reversed(records):
        if isinstance(record.event, AttemptEnded):
            return []  # Their numbers may be other processes' by now.
        if isinstance(record.event, AttemptStarted):
            return record.event.pids
    return []


def records_of(log: Path, launcher: int) -> list[Record]:
    """Return what a log holds of one launcher's run; others may have written into the same folder."""
    try:
        records = read_events(log).records
    except InputError:
        return []
    starts = [
        number
        for number, record in enumerate(records)
        if isinstance(record.event, RunStarted) and record.event.pid == launcher
    ]
    if not starts:
        return []
    # The second part of an event's id is the process that wrote it.
    others = (RunStarted, AttemptStarted, AttemptEnded, RunEnded)
    return [
        record
        for record in records[starts[-1] :]
        if not isinstance(record.event, others) or record.stamp.event_id.split("-")[1:2] == [str(launcher)]
    ]


if __name__ == "__main__":
    sys.exit(main())
