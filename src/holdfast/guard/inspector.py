"""Watches a job's speed from the guard: gathers what the hosts and links say, and tells what was found.

What is a slowdown, and who is to blame, the pure rooms decide.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.detect.counters import Sample
from holdfast.detect.host import ProcessRates, strain_between
from holdfast.detect.links import LinkRate, LinkSnapshot, link_rates
from holdfast.detect.signs import explain
from holdfast.diagnose.causes import Sign
from holdfast.diagnose.lines import find_lines
from holdfast.diagnose.links import SlowLink, find_slow_links
from holdfast.diagnose.lookout import Lookout, Trouble
from holdfast.diagnose.naming import Evidence, name_suspects
from holdfast.diagnose.telling import tell_change, tell_suspect
from holdfast.guard.questions import Questions
from holdfast.guard.sampler import Sampler
from holdfast.guard.say import Say
from holdfast.job.linkpage import LinkPageReader
from holdfast.values import AnyEvent, JobRelieved, JobSlowed, Step, SuspectsNamed

_REMEMBERED_S = 180
"""How many looks, one a second, are kept."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel counts at one time."""

    at_s: float
    host: Sample
    links: list[LinkSnapshot]


class Inspector:
    """Looks once a second, and finds out why when the job gets slow."""

    def __init__(
        self,
        folder: Path,
        *,
        pids: Callable[[], Mapping[int, int]],
        tell: Callable[[AnyEvent], None],
        say: Say,
        host: str,
    ) -> None:
        self._folder = folder
        self._tell = tell
        self._say = say
        self._host = host
        self._lookout = Lookout()
        self._sampler = Sampler(pids)
        self._pages: dict[Path, LinkPageReader[LinkSnapshot]] = {}
        self._looks: deque[Look] = deque(maxlen=_REMEMBERED_S)
        self._questions = Questions(folder)

    def look(self) -> Sample:
        """Return what the hosts do just now."""
        return self._sampler.sample()

    def inspect(self, steps: Sequence[Step], sample: Sample) -> None:
        """Take in a second's steps and a look, and tell what is new."""
        self._looks.append(Look(at_s=sample.at_s, host=sample, links=self._read_links()))
        for change in self._lookout.take(steps):
            event = JobSlowed if change.direction == "slow" else JobRelieved
            self._tell(event(change=change))
            self._say.line(tell_change(change))
            if change.direction == "slow":
                self._questions.ask(list(sample.processes), now_s=sample.at_s)
        if self._lookout.is_ripe() and self._questions.is_over(sample.at_s):
            self._name()

    def _name(self) -> None:
        trouble = self._lookout.trouble
        assert trouble is not None
        signs, links = self._look_back(trouble)
        for rank, found in find_lines(self._questions.answers()).items():
            signs.setdefault(rank, []).extend(found)
        now = self._lookout.profiles()
        evidence = Evidence(
            now=now,
            healthy=trouble.healthy,
            signs=signs,
            links=links,
            hosts=dict.fromkeys(now, self._host),
        )
        suspects = name_suspects(evidence)
        self._lookout.close_case()
        self._tell(SuspectsNamed(since_step=trouble.since_step, suspects=suspects))
        for suspect in suspects:
            self._say.line(tell_suspect(suspect))
            for sentence in suspect.evidence:
                self._say.line(f"  {sentence}")

    def _look_back(self, trouble: Trouble) -> tuple[dict[int, list[Sign]], list[SlowLink]]:
        """Return what hosts and links did since the trouble began, against what they did before."""
        before = [look for look in self._looks if trouble.healthy_since_s <= look.at_s <= trouble.since_s]
        since = [look for look in self._looks if look.at_s > trouble.since_s]
        if len(since) < 2:
            return {}, []
        healthy = _rates(before)
        signs = {
            rank: [Sign(cause=each.cause, strength=each.strength, evidence=each.evidence) for each in found]
            for rank, found in explain(_rates(since), healthy).items()
        }
        return signs, find_slow_links(_links(since), _links(before) or None)

    def _read_links(self) -> list[LinkSnapshot]:
        found = []
        for path in sorted(self._folder.glob("links_*.page")):
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


def _rates(looks: Sequence[Look]) -> dict[int, ProcessRates]:
    return strain_between(looks[0].host, looks[-1].host).ranks if len(looks) > 1 else {}


def _links(looks: Sequence[Look]) -> list[LinkRate]:
    return link_rates(looks[0].links, looks[-1].links) if len(looks) > 1 else []
