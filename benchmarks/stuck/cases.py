"""Hangs with a known answer, each from a seed, and how well they are named."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.diagnose.hangs import Hang, diagnose_hang
from holdfast.observe.flightdump import Dump, parse_dump
from stuck.job import Fault, Job
from stuck.program import Layout, write_program
from stuck.record import Recorder, record

LAYOUTS = [(2, 2, 4), (2, 4, 2), (4, 2, 2), (1, 4, 4), (4, 1, 4), (2, 2, 2), (3, 3, 2), (8, 1, 1)]
SURE = 0.8
"""Above this confidence nobody may be named who is innocent."""

Outcome = Literal["exact", "narrowed", "part", "none", "wrong"]
"""All guilty ranks named and nobody else; all of them within sets that say they are unsure; some of them and
nobody else; nobody; an innocent named as if that were certain, or blamed alone."""


@dataclass(frozen=True)
class Case:
    """The dumps of a hang, and who caused it."""

    dumps: list[Dump]
    guilty: list[int]
    hidden: list[int]
    """Those of the guilty without whose fault their devices would stand at the very same place, because of
    another's; to name them is right, and not to name them, too."""
    words: str


def make_case(seed: int, fault: Fault, *, count: int = 1, has_timing: bool | None = None) -> Case:
    """Return a hang of a random job in which one or more ranks stop at the same moment."""
    rng = random.Random(f"{fault} {count} {seed}")
    layout = Layout(*rng.choice(LAYOUTS))
    ahead = rng.randint(1, 24)
    job = Job(write_program(layout, rng), rng, ahead)
    recorder = Recorder.draw(rng, ahead, has_timing=has_timing)
    job.run(until=rng.uniform(0.1, 0.4))
    guilty = sorted(rng.sample(range(layout.world), count))
    before = copy.deepcopy(job)
    _hang(job, guilty, fault)
    hidden = [rank for rank in guilty if count > 1 and _is_hidden(before, job, rank, guilty, fault)]
    ranks = [rank for rank in range(layout.world) if fault != "dead" or rank not in guilty]
    dumps = [parse_dump(json.dumps(record(job, rank, recorder)).encode(), rank) for rank in ranks]
    words = f"{fault} {guilty}, hidden {hidden}, seed {seed}, {layout}, ahead {ahead}, {recorder}"
    return Case(dumps, guilty, hidden, words)


def _hang(job: Job, guilty: Sequence[int], fault: Fault) -> None:
    for rank in guilty:
        job.stop(rank, fault)
    job.run()
    assert not all(len(rank.done) == len(rank.calls) for rank in job.ranks), "the job came to its end"


def _is_hidden(before: Job, job: Job, rank: int, guilty: Sequence[int], fault: Fault) -> bool:
    spared = copy.deepcopy(before)
    _hang(spared, [each for each in guilty if each != rank], fault)
    return spared.ranks[rank].device == job.ranks[rank].device


def judge(hang: Hang, guilty: Sequence[int], hidden: Sequence[int] = ()) -> Outcome:
    """Return how good an answer is."""
    truth, needed = set(guilty), set(guilty) - set(hidden)
    named = {rank for each in hang.suspects for rank in each.ranks}
    doubtful = [each for each in hang.suspects if not set(each.ranks) <= truth]
    if any(each.confidence > SURE or not truth & set(each.ranks) for each in doubtful):
        return "wrong"
    if not named:
        return "none"
    if not needed <= named:
        return "part"
    return "narrowed" if doubtful else "exact"


def solve(case: Case) -> Outcome:
    """Return how good the answer to a case is."""
    return judge(diagnose_hang(case.dumps), case.guilty, case.hidden)
