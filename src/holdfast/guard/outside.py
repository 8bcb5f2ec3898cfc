"""The guard's door to the outside: a server that is sent to, and people who want something of the run."""

from __future__ import annotations

import argparse
import os
from collections.abc import MutableMapping
from pathlib import Path

import msgspec

from holdfast.errors import InputError
from holdfast.guard.asked import Asked
from holdfast.guard.eventlog import EventLog, log_name
from holdfast.guard.live import Live, LiveSettings
from holdfast.guard.mitigating import Mitigation
from holdfast.guard.posting import TOKEN_ENV, make_poster
from holdfast.guard.profiling import ProfileHabits
from holdfast.guard.say import Say
from holdfast.guard.sending import Sending
from holdfast.guard.watchdog import Watchdog
from holdfast.observe.eventlog import read_events

_FLUSH_S = 3.0
"""For the last lines to reach the server."""


class Changeable(msgspec.Struct, frozen=True, kw_only=True):
    """What people may change while the run goes on."""

    watchdog: Watchdog
    habits: ProfileHabits
    mitigation: Mitigation


def add_outside_flags(parser: argparse.ArgumentParser) -> None:
    """Let a guard be told about a server."""
    parser.add_argument("--server", default="", help="where events and summaries are sent")
    parser.add_argument("--token-file", help="file with the token for the server")
    parser.add_argument("--run-key", default="", help="different for every run, the same on all its nodes")


class Outside:
    """Of one guard; only that of node 0 takes orders."""

    def __init__(
        self, args: argparse.Namespace, run_dir: Path, log: EventLog, parts: Changeable, say: Say
    ) -> None:
        self._run_dir = run_dir
        self._parts = parts
        self._say = say
        start = LiveSettings(
            kill_hung=parts.watchdog.kills,
            profile=parts.habits.when_slow,
            profile_every=parts.habits.every_steps,
            least_confidence=parts.mitigation.least_confidence,
        )
        self._live = Live(run_dir, start)
        self._asked: Asked | None = None
        if args.node == 0:
            self._asked = Asked(run_dir, tell=log.append, undo=parts.mitigation.undo)
        self._sending = _make_sending(args, run_dir, say, os.environ)

    def open(self) -> None:
        """Begin to send; what a guard before this one was asked is not done again."""
        if self._asked is not None:
            try:
                log = read_events(self._run_dir / log_name(0))
                self._asked.follow_on(record.event for record in log.records)
            except InputError:  # There is no log yet, and so nothing was asked.
                pass
        if self._sending is not None:
            self._sending.start()

    def listen(self) -> None:
        """Do what people want, and go by the settings that they changed; called once a second."""
        try:
            if self._asked is not None:
                self._asked.look()
            self._apply(self._live())
        except Exception as error:  # There are more important things to do.
            self._say.once("orders", f"the guard cannot take orders: {error!r}")

    def close(self, *, is_last: bool) -> None:
        """End; where nobody comes after the guard, send what is left."""
        if self._sending is not None:
            self._sending.stop(flush_s=_FLUSH_S if is_last else 0.0)

    def _apply(self, settings: LiveSettings) -> None:
        parts = self._parts
        parts.watchdog.kills = settings.kill_hung
        parts.habits.when_slow, parts.habits.every_steps = settings.profile, settings.profile_every
        parts.mitigation.least_confidence = settings.least_confidence


def _make_sending(
    args: argparse.Namespace, run_dir: Path, say: Say, env: MutableMapping[str, str]
) -> Sending | None:
    token = env.pop(TOKEN_ENV, "")  # Nothing that the guard starts is to know it.
    url, token_file = args.server, args.token_file
    if args.attached:  # No launcher has read the settings for it.
        url = url or env.get("HOLDFAST_SERVER", "")
        token_file = token_file or env.get("HOLDFAST_TOKEN_FILE") or None
    if not url:
        return None
    try:
        poster = make_poster(url, token_file=token_file, env={**env, TOKEN_ENV: token})
    except InputError as error:
        say.line(f"nothing is sent: {error}")
        return None
    return Sending(run_dir, poster, node=args.node, key=args.run_key, say=say)
