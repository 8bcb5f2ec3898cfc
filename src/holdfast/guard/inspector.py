"""Watches the job's speed from the controller: gathers what hosts and links say, and tells what was found.

What is a slowdown, and who is to blame, the pure rooms decide.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.detect.host import ProcessRates, strain_between
from holdfast.detect.links import LinkRate, LinkSnapshot, link_rates
from holdfast.detect.signs import explain
from holdfast.diagnose.causes import Sign
from holdfast.diagnose.groups import SlowGroup, find_slow_groups, group_times
from holdfast.diagnose.imbalance import find_lasting_imbalance
from holdfast.diagnose.layout import Layout, find_layout
from holdfast.diagnose.lines import find_lines
from holdfast.diagnose.links import SlowLink, find_slow_links
from holdfast.diagnose.lookout import Lookout, Trouble
from holdfast.diagnose.naming import Evidence, name_suspects
from holdfast.diagnose.telling import tell_change, tell_probe, tell_suspect
from holdfast.findings import ChangePoint, Suspect
from holdfast.guard.batches import Batch
from holdfast.guard.inquiry import Inquiry
from holdfast.guard.jobprofile import Progress
from holdfast.guard.probing import Precheck, Probing, wants_probe
from holdfast.guard.say import Say
from holdfast.telemetry import Ask, Channel
from holdfast.values import AnyEvent, JobRelieved, JobSlowed, Probed, SuspectsNamed

_WEAK = 0.65
"""A verdict that is less sure is not told before another look: a whole group, or nobody."""
_REMEMBERED = 180
"""Batches of each node, one a second, that are kept."""
_MANY_NODES, _REMEMBERED_OF_MANY = 64, 30
"""Of more nodes than this fewer are: 10,000 ranks must not fill the memory."""


class Inspector:
    """Takes in a second's batches, and finds out why when the job gets slow."""

    def __init__(
        self,
        *,
        tell: Callable[[AnyEvent], None],
        say: Say,
        ask: Callable[[Ask], None],
        probing: Probing | None = None,
    ) -> None:
        self._tell = tell
        self._say = say
        self._probing = probing
        self.lookout = Lookout()
        """What is known of the job's steps."""
        self._inquiry = Inquiry(ask)
        self._batches: dict[int, deque[Batch]] = {}
        """By node, without their steps."""
        self._nodes: dict[int, int] = {}
        self._hosts: dict[int, str] = {}
        self._channels: dict[int, list[Channel]] = {}
        self._weak: tuple[int, list[Suspect]] | None = None
        """Since when, and who: what a look showed that was not enough to tell."""

    def inspect(self, batches: Sequence[Batch], now_s: float) -> None:
        """Look at what has come in, and tell what is new."""
        for batch in batches:
            kept = msgspec.structs.replace(
                batch, steps=[], answers=[], channels={}, profile=None, functions={}
            )
            self._remember(kept)
            self._forget(batch)
            self._nodes |= dict.fromkeys(batch.calls, batch.node)
            self._hosts |= dict.fromkeys(batch.calls, batch.host)
            self._channels |= batch.channels
        self._inquiry.take(batches)
        before = self.lookout.trouble
        changes = self.lookout.take([step for batch in batches for step in batch.steps])
        trouble = self.lookout.trouble
        if trouble is not None and (before is None or before.since_step != trouble.since_step):
            # While it goes on: by the time that it has lasted long enough to be told, the answers are there.
            self._inquiry.ask(sorted(self._hosts), now_s=now_s)
        for change in changes:
            self._tell_change(change)
        if self.lookout.is_ripe() and self._inquiry.is_over(now_s):
            self._name(now_s)
        self._take_probe(now_s)
        settled = self.lookout.settled()
        uneven = find_lasting_imbalance(*settled, self._layout()) if settled else []
        if uneven:
            self._tell(SuspectsNamed(since_step=0, suspects=uneven))
            self._say_suspects(uneven)

    def _tell_change(self, change: ChangePoint) -> None:
        event = JobSlowed if change.direction == "slow" else JobRelieved
        self._tell(event(change=change))
        self._say.line(tell_change(change))
        if change.direction != "slow":
            self._settle_for_weak()

    def progress(self) -> Progress | None:
        """Return where the job is; None before it has made a few steps."""
        step_s = self.lookout.recent_step_s()
        if step_s is None:
            return None
        return Progress(
            step=self.lookout.last_step,
            step_s=step_s,
            ranks=sorted(self._hosts),
            hosts=self._hosts,
            channels=self._channels,
        )

    def _remember(self, batch: Batch) -> None:
        mine = self._batches.get(batch.node)
        if mine is None:
            if len(self._batches) == _MANY_NODES:
                few = {node: deque(old, maxlen=_REMEMBERED_OF_MANY) for node, old in self._batches.items()}
                self._batches = few
            room = _REMEMBERED if len(self._batches) < _MANY_NODES else _REMEMBERED_OF_MANY
            mine = self._batches[batch.node] = deque(maxlen=room)
        mine.append(batch)

    def _forget(self, batch: Batch) -> None:
        """Forget ranks of which their node no longer tells: they left, and the others have gone on."""
        gone = [rank for rank, node in self._nodes.items() if node == batch.node and rank not in batch.calls]
        for rank in gone:
            del self._nodes[rank], self._hosts[rank]
            self._channels.pop(rank, None)

    def _name(self, now_s: float) -> None:
        trouble = self.lookout.trouble
        assert trouble is not None
        evidence = self._gather(trouble)
        suspects = name_suspects(evidence)
        is_vague = _is_vague(suspects, ranks=len(evidence.now))
        if trouble.is_named and (is_vague or _is_weak(suspects)):  # As was told already.
            self._look_later(now_s)
            return
        if _is_weak(suspects) and self.lookout.look_again():
            self._weak = (trouble.since_step, suspects)
            self._inquiry.ask(sorted(self._hosts), now_s=now_s)
            return
        self._weak = None
        self.lookout.close_case()
        self._tell(SuspectsNamed(since_step=trouble.since_step, suspects=suspects))
        self._say_suspects(suspects)
        if is_vague:  # Once it is told: whoever acts reckons from where the trouble began.
            self._look_later(now_s)
        if self._probing is not None and wants_probe(suspects):
            step_s = _step_s(evidence)
            self._probing.begin(suspects, sorted(evidence.now), step=self.lookout.last_step, step_s=step_s)

    def _look_later(self, now_s: float) -> None:
        self.lookout.look_later()
        self._inquiry.ask(sorted(self._hosts), now_s=now_s)

    def _settle_for_weak(self) -> None:
        """Tell what was held back for another look, which will not come: the trouble is over."""
        if self._weak is not None:
            since_step, suspects = self._weak
            self._weak = None
            self._tell(SuspectsNamed(since_step=since_step, suspects=suspects))
            self._say_suspects(suspects)

    def _gather(self, trouble: Trouble) -> Evidence:
        signs, links, mild_links = self._look_back(trouble)
        for rank, found in find_lines(self._inquiry.answers).items():
            signs.setdefault(rank, []).extend(found)
        return Evidence(
            now=self.lookout.profiles(),
            healthy=trouble.healthy,
            signs=signs,
            links=links,
            mild_links=mild_links,
            groups=self._slow_groups(trouble),
            layout=self._layout(),
            hosts=self._hosts,
        )

    def _take_probe(self, now_s: float) -> None:
        if self._probing is None:
            return
        probed = self._probing.look(step=self.lookout.last_step, now_s=now_s, hosts=self._hosts)
        if probed is not None:
            self.tell_probed(probed)

    def take_precheck(self, precheck: Precheck) -> None:
        """Tell what the ranks of this node found before the first step, once."""
        probed = precheck.look(self._hosts, has_steps=self.lookout.last_step > 0)
        if probed is not None:
            self.tell_probed(probed)

    def tell_probed(self, probed: Probed) -> None:
        """Tell what a probe found."""
        self._tell(probed)
        self._say.line(tell_probe(probed))
        self._say_suspects(probed.suspects)

    def _say_suspects(self, suspects: Sequence[Suspect]) -> None:
        for suspect in suspects:
            self._say.line(tell_suspect(suspect))
            for sentence in suspect.evidence:
                self._say.line(f"  {sentence}")

    def _layout(self) -> Layout:
        return find_layout(self._channels)

    def _slow_groups(self, trouble: Trouble) -> list[SlowGroup]:
        channels = {rank: {each.number: each for each in mine} for rank, mine in self._channels.items()}
        now = group_times(self.lookout.steps_of(since=trouble.since_step), channels)
        before = group_times(trouble.healthy_steps, channels)
        step_s = statistics.median(profile.duration_s for profile in self.lookout.profiles().values())
        return find_slow_groups(now, before, step_s=step_s)

    def _look_back(self, trouble: Trouble) -> tuple[dict[int, list[Sign]], list[SlowLink], list[SlowLink]]:
        """Return what hosts and links did since the trouble began, against what they did before.

        Of links also those that are slow if no rank is late.
        """
        now: dict[int, ProcessRates] = {}
        healthy: dict[int, ProcessRates] = {}
        links_now: list[tuple[list[LinkSnapshot], list[LinkSnapshot]]] = []
        links_healthy: list[tuple[list[LinkSnapshot], list[LinkSnapshot]]] = []
        for batches in self._batches.values():
            before = [b for b in batches if trouble.healthy_since_s <= b.sample.at_s <= trouble.since_s]
            since = [b for b in batches if b.sample.at_s > trouble.since_s]
            if len(since) > 1:
                now |= _rates(since)
                links_now.append((since[0].links, since[-1].links))
            if len(before) > 1:
                healthy |= _rates(before)
                links_healthy.append((before[0].links, before[-1].links))
        signs = {
            rank: [Sign(cause=each.cause, strength=each.strength, evidence=each.evidence) for each in found]
            for rank, found in explain(now, healthy).items()
        }
        rates, before_rates = _links(links_now), _links(links_healthy) or None
        slow = find_slow_links(rates, before_rates)
        return signs, slow, find_slow_links(rates, before_rates, is_nobody_late=True)


def _is_weak(suspects: Sequence[Suspect]) -> bool:
    """Say whether nobody could be named with some certainty."""
    return all(suspect.confidence < _WEAK for suspect in suspects)


def _is_vague(suspects: Sequence[Suspect], *, ranks: int) -> bool:
    """Say whether nobody in particular was named: nobody at all, or more than half of the ranks."""
    return all(suspect.kind == "rank" and 2 * len(suspect.ranks) > ranks for suspect in suspects)


def _step_s(evidence: Evidence) -> float:
    return statistics.median(profile.duration_s for profile in evidence.now.values())


def _rates(batches: Sequence[Batch]) -> Mapping[int, ProcessRates]:
    return strain_between(batches[0].sample, batches[-1].sample).ranks


def _links(spans: Sequence[tuple[list[LinkSnapshot], list[LinkSnapshot]]]) -> list[LinkRate]:
    began = [snapshot for first, _ in spans for snapshot in first]
    ended = [snapshot for _, last in spans for snapshot in last]
    return link_rates(began, ended)
