"""All workers' patterns judged as a whole: who is to blame, who waits, whose profile is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from holdfast.diagnose.blame import Window, blame
from holdfast.diagnose.layout import find_layout
from holdfast.diagnose.links import SlowLink
from holdfast.diagnose.localise import Finding, localise
from holdfast.diagnose.patterns import Patterns
from holdfast.diagnose.published import find_abnormal
from holdfast.diagnose.reduce import Known, WorkerPattern, gather
from holdfast.diagnose.settle import settle
from holdfast.findings import Suspect
from holdfast.telemetry import Channel


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the profiles of a job say."""

    suspects: list[Suspect]
    victims: list[int]
    missing: list[int]
    world_size: int
    ranks: list[int]
    span_s: float
    """How long the profiles are, in the median."""
    findings: list[Finding]


def judge_profiles(
    workers: Sequence[WorkerPattern],
    known: Mapping[int, Known],
    groups: Mapping[int, Sequence[Channel]],
    world_size: int | None = None,
    links: Sequence[SlowLink] = (),
) -> Verdict:
    """Compare all workers, each with those of its role; ``links`` are slow by what connections tell."""
    patterns, functions = gather(workers, known)
    ranks = patterns.ranks.tolist()
    roles = find_layout({rank: groups.get(rank, ()) for rank in ranks}).roles
    findings = localise(patterns, np.array([roles[rank] for rank in ranks], np.int64))
    span_s = float(np.median([worker.span_s for worker in workers])) if workers else 0.0
    has_device = any(worker.has_device for worker in workers)
    found = blame(findings, functions, Window(ranks=ranks, span_s=span_s, has_device=has_device))
    suspects = settle(found, links, ranks, waited_share=_waited_share(patterns))
    guilty = {rank for suspect in suspects for rank in suspect.ranks}
    size = max(world_size or 0, 1 + max(ranks, default=-1))
    return Verdict(
        suspects=suspects,
        victims=sorted({rank for suspect in suspects for rank in suspect.victims} - guilty),
        missing=sorted(set(range(size)) - set(ranks)),
        world_size=size,
        ranks=ranks,
        span_s=span_s,
        findings=findings,
    )


def _waited_share(patterns: Patterns) -> float:
    """Return the share of the time that the median rank spends in collectives."""
    rows = [row for row, kind in enumerate(patterns.kinds) if kind == "collective"]
    return float(np.median(patterns.beta[rows].sum(axis=0))) if rows and len(patterns.ranks) else 0.0


def judge_as_published(
    workers: Sequence[WorkerPattern], known: Mapping[int, Known], rng: np.random.Generator
) -> list[tuple[str, list[int]]]:
    """Return each function that EROICA's rule calls abnormal, with the ranks."""
    patterns, _ = gather(workers, known)
    abnormal = find_abnormal(patterns, rng)
    return [
        (name, patterns.ranks[row].tolist())
        for name, row in zip(patterns.names, abnormal, strict=True)
        if row.any()
    ]
