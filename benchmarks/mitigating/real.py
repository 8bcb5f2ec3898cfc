"""Real processes on emulated accelerators, the detector in the loop: what of a slowdown is removed.

Three runs of each job: without faults, with them, and with them and ``--act``. Faults hold for steps, not
for seconds, so that all three make the same steps and their times can be compared. The schedule is FALCON's
for 64 GPUs, scaled to 8 workers: time is shortened, the more where nothing is slow; of N of 16 replicas that
were slow one worker is; each as slow as makes the job as slow as it was. Whoever acts knows none of it.

The host of a virtual machine gives it to others now and then, in each of the three runs for another time.
The kernel counts that (``steal``), whatever the job does. So steps in which more than a tenth of the machine
was taken away are counted, in all three runs, as the median of the others that were alike: the same was slow,
and the same in force. Where something was done the clock counts, always.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import common
from holdfast.lab.pacing import NIC_ENV
from holdfast.serve import chart
from holdfast.serve.chart import Chart, Panel, Series
from holdfast.values import AnyEvent, Applied, Decided, IncidentClosed
from mitigating.published import GPUS_64, Compute, Network, Published
from returning.runs import Launched
from watched.reference import SAMPLED_S, Reference

MICROBATCHES = 8
WIDTH = 64
OP_MS = 24.0
SHAPES = {"2x4": (2, 4), "4x2": (4, 2)}
_SHORTER = 3.0
"""Time in which a worker or a link is slow passes so many times faster than it did,"""
_MUCH_SHORTER = 6.0
"""and other time so many."""
_WARM_STEPS = 100
"""Before anything happens; the first of them are not counted."""
_COUNTED_FROM = 20
NIC_BYTES_S = 10e6
"""Of the emulated NIC in all runs: gradients of so small a model would cost nothing at all on a fast one."""
_NIC = "slow_link rank=0-1 at=100000000 for=1 severity=2"
"""It is emulated where there is a fault of the network, if only one that never comes."""
_TAKEN = 0.1
"""A step in which others had more of the machine than this tells little of the job."""
_LEAST_ALIKE = 4
"""Of fewer no median is taken."""
_TRIED_FACTORS = (2.0, 4.0, 8.0)
"""By which a link is slowed down to find out what that costs the job; a little of it may cost nothing."""
_TRIED_STEPS, _SETTLING_STEPS = 40, 5
"""For how long each, and how many of these are not looked at."""


@dataclass(frozen=True)
class Band:
    """A fault, by steps."""

    words: str
    first: int
    last: int


Kind = tuple[frozenset[int], int, int]
"""Steps are alike in which the same faults were there, and the same was in force. None is like those around
something that is done: there the clock counts."""


@dataclass(frozen=True)
class Ran:
    """What a run left."""

    ends_s: list[float]
    """When each step ended."""
    events: list[AnyEvent]
    digests: dict[int, str]
    taken: list[float]
    """Of the machine, by others, while each step was made."""

    @property
    def seconds(self) -> float:
        return self.ends_s[-1] - self.ends_s[_COUNTED_FROM]

    @property
    def taken_share(self) -> float:
        """Of the steps, those in which the machine was others'."""
        counted = self.taken[_COUNTED_FROM + 1 :]
        return sum(each > _TAKEN for each in counted) / len(counted)

    def undisturbed_s(self, bands: list[Band]) -> list[float]:
        """Return what each step would have taken on a machine of its own, from the first that is counted."""
        steps = range(_COUNTED_FROM + 1, len(self.ends_s))
        own: dict[Kind, list[float]] = {}
        for step in steps:
            if self.taken[step] <= _TAKEN:
                own.setdefault(self._kind(step, bands), []).append(self._clock_s(step))
        usual_s = {kind: statistics.median(each) for kind, each in own.items() if len(each) >= _LEAST_ALIKE}
        return [
            usual_s.get(self._kind(step, bands), self._clock_s(step))
            if self.taken[step] > _TAKEN
            else self._clock_s(step)
            for step in steps
        ]

    def _clock_s(self, step: int) -> float:
        return self.ends_s[step] - self.ends_s[step - 1]

    def _kind(self, step: int, bands: list[Band]) -> Kind:
        done = [event.version for event in self.events if isinstance(event, Applied)]
        last = max((version for version in done if version <= step + 1), default=0)
        slow = frozenset(number for number, band in enumerate(bands) if band.first < step <= band.last)
        return slow, last, step if last and step - last <= 1 else 0


def measure(options: argparse.Namespace) -> common.Part:
    """Run the published schedule and the compound case on both shapes."""
    rows = []
    for shape in options.shape or SHAPES:
        for case, make in (("64-GPU schedule", scaled), ("compound", compound)):
            if options.case is None or options.case in case:
                rows.append(_measure(case, shape, make, options))
    notes = [
        "emulated accelerators, CPU with gloo; 8 workers on the cores of one machine",
        "removed: (time with the faults - time with them and --act) / (time with them - time without)",
        f"steps in which others had more than {_TAKEN:.0%} of the machine count as the median of those alike",
    ]
    return common.Part(rows, notes, is_good=all(row["same bits"] for row in rows))


def _measure(case: str, shape: str, make: Any, options: argparse.Namespace) -> dict[str, Any]:
    bands, steps = make(_measure_pace(shape))
    name = f"{shape}-{case.split(maxsplit=1)[0]}"
    kept = options.keep / name if options.keep is not None else None
    acted = run(shape, steps, bands, act="S2,S3", kept=kept and kept / "acted")
    never = run(shape, steps, bands, kept=kept and kept / "never")
    healthy = run(shape, steps, [], kept=kept and kept / "healthy")
    runs = (healthy, never, acted)
    counted = [each.undisturbed_s(slow) for each, slow in zip(runs, ([], bands, bands), strict=True)]
    if options.plot is not None:
        options.plot.mkdir(parents=True, exist_ok=True)
        (options.plot / f"acting-{name}.svg").write_text(draw(shape, case, bands, counted))
    healthy_s, never_s, acted_s = map(sum, counted)
    done = [event for event in acted.events if isinstance(event, Applied)]
    decided = [event for event in acted.events if isinstance(event, Decided) and not event.is_dry]
    return {
        "shape": shape,
        "case": case,
        "steps": steps,
        "healthy s": healthy_s,
        "never s": never_s,
        "acted s": acted_s,
        "removed pct": 100 * (never_s - acted_s) / (never_s - healthy_s),
        "by the clock": ", ".join(f"{each.seconds:.0f}" for each in runs),
        "others had pct": ", ".join(f"{100 * each.taken_share:.0f}" for each in runs),
        "acts": " ".join(f"{event.level}@{event.version}" for event in done),
        "paused s": sum(event.pause_s for event in done),
        "bills": sum(isinstance(event, IncidentClosed) for event in acted.events),
        "as it was": not decided or (not decided[-1].speeds and decided[-1].level == "undo"),
        # Who changed places ends with the other's parameters.
        "same bits": len({frozenset(each.digests.values()) for each in runs}) == 1,
    }


@dataclass(frozen=True)
class Measured:
    """What a job of a shape does here, now."""

    dp: int
    pp: int
    step_s: float
    costs: dict[int, list[tuple[float, float]]]
    """By stage: how slow the job is by how slow a link of that stage is."""

    def ends(self, stage: int) -> tuple[int, int]:
        """Return the ranks of a link that gradients of a stage go over: neighbours in its ring."""
        return (self.dp // 2 - 1) * self.pp + stage, self.dp // 2 * self.pp + stage

    def link_factor(self, stage: int, slowdown: float) -> float:
        """Return how much slower a link of the stage has to be for the job to be as slow as that."""
        for (low, before), (high, after) in pairwise([(1.0, 1.0), *self.costs[stage]]):
            if after >= slowdown:
                return low + (high - low) * (slowdown - before) / (after - before)
        raise SystemExit(f"no link of stage {stage} makes the job slower by {slowdown:.2f}: {self.costs}")


def _measure_pace(shape: str) -> Measured:
    """Run a job in which the link of each stage is slow for a while, and slower, and slower still."""
    dp, pp = SHAPES[shape]
    here = Measured(dp, pp, 0.0, {})
    bands: dict[tuple[int, float], Band] = {}
    first = _WARM_STEPS
    for stage in (0, pp - 1):  # Where slow links of the schedule are.
        words = "slow_link rank={}-{}".format(*here.ends(stage))
        for factor in _TRIED_FACTORS:
            bands[stage, factor] = _band(words, first, first + _TRIED_STEPS, factor)
            first += _TRIED_STEPS + _SETTLING_STEPS
    ran = run(shape, first, list(bands.values()))
    healthy_s = _step_s(ran, _COUNTED_FROM, _WARM_STEPS)
    costs: dict[int, list[tuple[float, float]]] = {}
    for (stage, factor), band in bands.items():
        slow_s = _step_s(ran, band.first + _SETTLING_STEPS, band.last)
        costs.setdefault(stage, []).append((factor, slow_s / healthy_s))
    return Measured(dp, pp, healthy_s, costs)


def _step_s(ran: Ran, first: int, last: int) -> float:
    """Return the median of the steps after one and up to another."""
    return statistics.median(after - before for before, after in pairwise(ran.ends_s[first : last + 1]))


# --- schedules --------------------------------------------------------------------------------


def scaled(here: Measured, published: Published = GPUS_64) -> tuple[list[Band], int]:
    """Return the published schedule for a job of this shape and pace."""
    dp, pp, shape = here.dp, here.pp, published.shape

    def step_at(at_s: float) -> int:
        return _WARM_STEPS + round(_shortened(at_s, published) / here.step_s)

    bands = []
    for each in published.compute:
        middle_s = (each.start_s + each.end_s) / 2
        links = [link.slowdown for link in published.network if link.start_s <= middle_s < link.end_s]
        wanted = each.slowdown / max([1.0, *links])
        pipeline, stage = each.places[0]
        rank = (pipeline * dp // shape.dp) * pp + stage * pp // shape.pp
        # The worker's own factor: a pipeline is filled and drained at the others' pace.
        factor = 1 + (wanted - 1) * (MICROBATCHES + pp - 1) / MICROBATCHES
        bands.append(_band(f"slow_device rank={rank}", step_at(each.start_s), step_at(each.end_s), factor))
    for slow in published.network:
        # It was between two machines, each of which had half of the replicas.
        stage = slow.stage * pp // shape.pp
        factor = here.link_factor(stage, slow.slowdown)
        words = "slow_link rank={}-{}".format(*here.ends(stage))
        bands.append(_band(words, step_at(slow.start_s), step_at(slow.end_s), factor))
    return bands, step_at(published.end_s) + 50


def _faults(published: Published) -> list[Compute | Network]:
    return [*published.compute, *published.network]


def _shortened(at_s: float, published: Published) -> float:
    edges = sorted({0.0, at_s, *(edge for each in _faults(published) for edge in (each.start_s, each.end_s))})
    slow_s = sum(
        after - before
        for before, after in pairwise(edges)
        if after <= at_s and any(each.start_s <= before < each.end_s for each in _faults(published))
    )
    return slow_s / _SHORTER + (at_s - slow_s) / _MUCH_SHORTER


def compound(here: Measured) -> tuple[list[Band], int]:
    """Return a slow link, then a slow worker beside it, then neither."""
    pp, first, length = here.pp, _WARM_STEPS, round(60 / here.step_s)
    link_words = "slow_link rank={}-{}".format(*here.ends(0))
    link = _band(link_words, first, first + 3 * length, here.link_factor(0, 1.4))
    worker = _band(f"slow_device rank={pp + 1}", first + length, first + 3 * length, 2.0)
    # Long enough for a link that was moved away to count as well again, and to get its old place.
    return [link, worker], first + 6 * length


def _band(words: str, first: int, last: int, factor: float) -> Band:
    return Band(f"{words} at={first} for={last - first} severity={factor:.3f}", first, last)


# --- runs -------------------------------------------------------------------------------------


def run(
    shape: str, steps: int, bands: list[Band], *, act: str | None = None, kept: Path | None = None
) -> Ran:
    """Run the job to its end; what it left may be kept."""
    dp, pp = SHAPES[shape]
    flags = [word for words in (_NIC, *(band.words for band in bands)) for word in ("--fault", words)]
    flags += ["--act", act] if act is not None else []
    job = ["--pp", str(pp), "--microbatches", str(MICROBATCHES), "--steps", str(steps)]
    job += ["--op-ms", str(OP_MS), "--width", str(WIDTH)]
    os.environ[NIC_ENV] = str(NIC_BYTES_S)
    with nullcontext(kept) if kept is not None else tempfile.TemporaryDirectory() as folder:
        with Reference() as reference:
            launched = Launched(Path(folder), dp * pp, flags, job, verb="inject")
            code = launched.process.wait()
        if code:
            raise SystemExit(f"the job ended with {code}: {launched.said[-2000:]}")
        ends_s = launched.numbers("ends")[0]
        taken = _taken(ends_s, reference)
        if kept is not None:
            (kept / "taken.json").write_text(json.dumps(taken))
        return Ran(ends_s=ends_s, events=launched.events(), digests=launched.digests(), taken=taken)


def _taken(ends_s: list[float], reference: Reference) -> list[float]:
    """Return which share of the machine others had in each step, and a moment before and after it."""
    since_s = time.time() - time.monotonic()
    shares = [
        reference.stolen(since_s + begin_s - SAMPLED_S, since_s + end_s + SAMPLED_S)
        for begin_s, end_s in pairwise(ends_s)
    ]
    return [0.0, *shares]


# --- the picture ------------------------------------------------------------------------------

_MEAN_STEPS = 15


def draw(shape: str, case: str, bands: list[Band], counted: list[list[float]]) -> str:
    """Return throughput over steps of the three runs as an SVG, and below it what was slow when."""
    names = ("without faults", "with them", "with them and --act")
    series = tuple(
        Series(name=name, points=_pace(each), is_reference=not number, is_main=number == len(names) - 1)
        for number, (name, each) in enumerate(zip(names, counted, strict=True))
    )
    faults = tuple(
        Series(name=f"slow {kind}", points=_slow(bands, kind), is_step=True, is_area=kind == "device")
        for kind in ("device", "link")
        if any(kind in band.words for band in bands)
    )
    return chart.draw(
        Chart(
            title=f"Slow workers and links, worked around: {case}, {shape}",
            subtitle=(
                "8 workers, real processes, emulated accelerators, CPU with gloo",
                "steps in which others had the machine are drawn as the median of those alike",
            ),
            x_label="step",
            panels=(
                Panel(y_label="steps per minute", series=series),
                Panel(y_label="how many", series=faults, height=70),
            ),
        )
    )


def _pace(steps_s: list[float]) -> tuple[tuple[float, float], ...]:
    """Return steps per minute over some steps at a time."""
    edges = list(enumerate(accumulate(steps_s, initial=0.0), start=_COUNTED_FROM))[::_MEAN_STEPS]
    return tuple(
        ((first + last) / 2, 60 * (last - first) / (end_s - begin_s))
        for (first, begin_s), (last, end_s) in pairwise(edges)
    )


def _slow(bands: list[Band], kind: str) -> tuple[tuple[float, float], ...]:
    """Return how many of a kind are slow from which step on."""
    mine = [band for band in bands if kind in band.words]
    edges = sorted({0, *(edge for band in mine for edge in (band.first, band.last))})
    return tuple((edge, float(sum(band.first <= edge < band.last for band in mine))) for edge in edges)
