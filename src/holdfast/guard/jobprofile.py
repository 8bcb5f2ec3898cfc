"""One profile of a whole job: gathered from its nodes, judged, and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from holdfast.detect.links import LinkRate, LinkSnapshot, link_rates
from holdfast.diagnose.case import Case, make_case, with_hosts
from holdfast.diagnose.reduce import Known, WorkerPattern
from holdfast.errors import InputError
from holdfast.guard.batches import Batch
from holdfast.guard.reducing import find_traces
from holdfast.observe.flight import rank_of
from holdfast.telemetry import Channel, ProfileOrder, ProfileResult

_NAMES_S = 30.0
"""For nodes to say what functions are."""


_MOST_RANK = 1 << 20
"""All ranks up to the last are counted: of a slip of the pen there would be more than memory holds."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A person's: ``profile_request.json`` in the run directory."""

    id: str
    steps: int | None = None
    """None: as many as take some seconds."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the job is."""

    step: int
    step_s: float
    ranks: list[int]
    hosts: Mapping[int, str]
    channels: Mapping[int, Sequence[Channel]]


class JobProfile(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one profile: ``job.json`` in its folder."""

    order: ProfileOrder
    why: str
    results: list[ProfileResult]
    patterns: list[WorkerPattern]
    functions: dict[int, Known]
    usage: dict[int, dict[str, float]]
    unread: list[str]
    channels: dict[int, list[Channel]]
    hosts: dict[int, str]
    links: list[LinkRate] = []
    """Of all connections, from the order until the traces were there."""


_JOB_PROFILE = msgspec.json.Decoder(JobProfile)


class Errands(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the nodes."""

    order: Callable[[ProfileOrder], None]
    functions: Callable[[int, list[int]], None]
    """Ask a node what some functions are; the answer comes with its batches."""


def to_case(profile: JobProfile, folder: Path | None = None) -> Case:
    """Judge a profile; ``folder`` is where it is kept, with traces of this node."""
    order = profile.order
    size = 1 + max(order.ranks, default=-1)
    judged = make_case(profile.patterns, profile.functions, profile.channels, size, profile.links)
    case = with_hosts(judged, profile.hosts)
    failed = [f"rank {each.rank}: {each.error}" for each in profile.results if each.error is not None]
    return msgspec.structs.replace(
        case,
        usage=profile.usage,
        traces=_traces(folder) if folder is not None else {},
        unread=[*profile.unread, *failed],
        about=f"steps {order.first_step} to {order.last_step}, profiled because of: {profile.why}",
        blocked_s=max((each.blocked_s for each in profile.results), default=None),
    )


def _traces(folder: Path) -> dict[int, str]:
    found = {}
    for trace in find_traces([str(folder)]):
        rank = rank_of(Path(Path(trace).name.partition(".")[0]))
        if rank is not None:
            found[rank] = trace
    return found


def read_profile(path: Path) -> JobProfile:
    """Read a profile that was kept; InputError if it is none."""
    try:
        profile = _JOB_PROFILE.decode(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"{path}: {error}, expected a profile that holdfast has made") from error
    highest = max([*profile.order.ranks, *(each.rank for each in profile.patterns)], default=0)
    if highest > _MOST_RANK:
        raise InputError(f"{path}: rank is {highest}, expected at most {_MOST_RANK}")
    return profile


def wish_path(run_dir: Path) -> Path:
    """Return where a person's request lies."""
    return run_dir / "profile_request.json"


class Gathering:
    """What has come in of one profile so far."""

    def __init__(
        self, order: ProfileOrder, why: str, progress: Progress, errands: Errands, *, until_s: float
    ) -> None:
        self._order = order
        self._why = why
        self._progress = progress
        self._errands = errands
        self._until_s = until_s
        self._results: dict[int, ProfileResult] = {}
        self._patterns: dict[int, WorkerPattern] = {}
        self._usage: dict[int, dict[str, float]] = {}
        self._unread: list[str] = []
        self._functions: dict[int, Known] = {}
        self._nodes: dict[int, int] = {}
        """Which node has the functions of a rank."""
        self._wanted: set[int] | None = None
        """Functions that somebody was asked for; None: not yet."""
        self._links: dict[int, tuple[list[LinkSnapshot], list[LinkSnapshot]]] = {}
        """By node, at first and at last."""

    def take(self, batches: Sequence[Batch], now_s: float) -> None:
        """Take in what nodes tell; when all have, ask for what nobody has told yet."""
        for batch in batches:
            self._functions |= batch.functions
            first, _ = self._links.get(batch.node, (batch.links, batch.links))
            self._links[batch.node] = (first, batch.links)
            if batch.profile is None or batch.profile.order != self._order.id:
                continue
            self._results |= {each.rank: each for each in batch.profile.results}
            self._patterns |= {each.rank: each for each in batch.profile.patterns}
            self._nodes |= dict.fromkeys((each.rank for each in batch.profile.patterns), batch.node)
            self._usage |= batch.profile.usage
            self._unread += batch.profile.unread
        if self._wanted is None and (len(self._results) == len(self._order.ranks) or now_s > self._until_s):
            self._ask(now_s)

    def _ask(self, now_s: float) -> None:
        """Ask for every function once in the whole job, whoever has it."""
        of_node: dict[int, list[int]] = {}
        self._wanted = set()
        for rank, pattern in sorted(self._patterns.items()):
            for number in np.frombuffer(pattern.numbers, np.uint64).tolist():
                if number not in self._wanted:
                    self._wanted.add(number)
                    of_node.setdefault(self._nodes[rank], []).append(number)
        self._until_s = now_s + _NAMES_S
        for node, numbers in sorted(of_node.items()):
            self._errands.functions(node, numbers)

    def is_over(self, now_s: float) -> bool:
        """Say whether all is known that will be."""
        return self._wanted is not None and (self._wanted <= self._functions.keys() or now_s > self._until_s)

    def profile(self) -> JobProfile:
        """Return all of it."""
        return JobProfile(
            order=self._order,
            why=self._why,
            results=[self._results[rank] for rank in sorted(self._results)],
            patterns=[self._patterns[rank] for rank in sorted(self._patterns)],
            functions=self._functions,
            usage=self._usage,
            unread=self._unread,
            channels={rank: list(mine) for rank, mine in self._progress.channels.items()},
            hosts=dict(self._progress.hosts),
            links=link_rates(
                [each for first, _ in self._links.values() for each in first],
                [each for _, last in self._links.values() for each in last],
            ),
        )
