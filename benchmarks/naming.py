"""Who is named when a real job is hurt: right rank or link, right cause, no victim blamed, no false alarm.

Real processes under ``holdfast run``; each scene is a job, a fault of the lab or of the script itself, and a
rank, a moment and a severity of the seed's choice. ``--only``, ``--job`` and ``--way`` choose scenes,
``--seeds`` how many of each; ``--healthy`` runs jobs in which nothing is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from common import parser, progress, show
from holdfast.observe.eventlog import read_run
from holdfast.values import AnyEvent, JobHung, JobSlowed, SuspectsNamed
from watched import rival
from watched.reference import Reference
from watched.running import run
from watched.scenes import STEPS, Scene, healthy_scenes, scenes

NOTHING = "nothing noticed"
LOOK_BACK_S = 20.0
"""A slowdown is told some seconds after it began."""


@dataclass(frozen=True)
class Verdict:
    """What came of a run."""

    scene: Scene
    seed: int
    is_noticed: bool
    is_rank_right: bool
    is_cause_right: bool
    is_victim_blamed: bool
    said: str
    host: str = ""
    """What the machine itself did at the time of a false alarm, if it was slow."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing at all was said."""
        return not self.is_noticed and self.said == NOTHING

    @property
    def is_right(self) -> bool:
        """Whether who was hurt was named, and nobody else."""
        return self.is_rank_right and self.is_cause_right and not self.is_victim_blamed

    @property
    def is_fine(self) -> bool:
        """Whether it is all as it should be."""
        return self.is_quiet if self.scene.way == "none" else self.is_right


def main() -> None:
    """Run the scenes and print the table."""
    options = parse()
    if options.healthy:
        chosen = [(scene, 0) for scene in healthy_scenes(options.healthy)]
    else:
        chosen = [
            (scene, seed)
            for seed in range(options.seed, options.seed + options.seeds)
            for scene in scenes(seed)
            if options.only in scene.kind and options.job in scene.job and options.way in scene.way
        ]
    if options.traceml:
        report_rival([each for each in chosen if rival.can_judge(each[0])], as_json=options.json)
        return
    verdicts = run_all(chosen, options.side_by_side, options.keep)
    if options.healthy:
        report_healthy(verdicts, as_json=options.json)
    else:
        report(verdicts, as_json=options.json)


def run_all(chosen: Sequence[tuple[Scene, int]], side_by_side: int, keep: Path | None) -> list[Verdict]:
    """Run those that only wait side by side, the others one by one."""
    together = [each for each in chosen if not each[0].is_alone]
    alone = [each for each in chosen if each[0].is_alone]
    found: list[Verdict] = []
    with progress() as bar, ThreadPoolExecutor(side_by_side) as pool:
        task = bar.add_task("scenes", total=len(chosen))
        for verdict in pool.map(lambda each: judge(each[0], each[1], keep), together):
            found.append(note(verdict))
            bar.advance(task)
        for scene, seed in alone:
            found.append(note(judge(scene, seed, keep)))
            bar.advance(task)
    return found


def note(verdict: Verdict) -> Verdict:
    """Tell about a run on stderr: it takes an hour until there is a table."""
    scene = verdict.scene
    said = "right" if verdict.is_fine else f"WRONG: {verdict.said}"
    what = f"seed {verdict.seed} {scene.job} {scene.fault or scene.kind}"
    print(f"{what}: {said} {verdict.host}".rstrip(), file=sys.stderr, flush=True)
    return verdict


def judge(scene: Scene, seed: int, keep: Path | None = None) -> Verdict:
    """Run a scene and say what came of it; the run directory of one that went wrong may be kept."""
    with tempfile.TemporaryDirectory() as folder:
        with Reference() as reference:
            verdict = hear(scene, seed, run(scene, Path(folder) / "run"))
        if scene.way == "none" and not verdict.is_quiet:
            verdict = replace(verdict, host=ask_machine(Path(folder) / "run", reference))
        if keep is not None and not verdict.is_fine:
            name = f"{seed}-{scene.job}-{scene.kind}-{time.time_ns()}".replace(" ", "_")
            shutil.copytree(Path(folder) / "run", keep / name)
    return verdict


def ask_machine(run_dir: Path, reference: Reference) -> str:
    """Say how the machine was before the alarms of a healthy run, if it was slow itself."""
    alarms = [record for record in read_run(run_dir).records if isinstance(record.event, JobSlowed)]
    for alarm in alarms:
        at_s = datetime.fromisoformat(alarm.stamp.at).timestamp()
        if reference.is_disturbed(at_s - LOOK_BACK_S, at_s):
            slowdown = reference.slowdown(at_s - LOOK_BACK_S, at_s)
            stolen = reference.stolen(at_s - LOOK_BACK_S, at_s)
            return f"(the machine itself: {slowdown:.2f} times slower, {stolen:.1%} of it stolen)"
    return ""


def hear(scene: Scene, seed: int, events: Sequence[AnyEvent]) -> Verdict:
    """Hold what was told against what was done."""
    kinds = SuspectsNamed | JobHung
    named = next((event for event in events if isinstance(event, kinds) and event.suspects), None)
    is_noticed = any(isinstance(event, JobSlowed | JobHung) for event in events)
    if named is None:
        said = "nobody named" if is_noticed else NOTHING
        return Verdict(scene, seed, is_noticed, False, False, False, said)
    first = named.suspects[0]
    blamed = {rank for suspect in named.suspects for rank in suspect.ranks}
    if scene.link is not None:
        is_right = first.link is not None and set(first.link) == set(scene.link)
    else:
        is_right = set(first.ranks) == set(scene.guilty)
    return Verdict(
        scene=scene,
        seed=seed,
        is_noticed=is_noticed,
        is_rank_right=is_right,
        is_cause_right=first.cause == scene.cause,
        is_victim_blamed=bool(blamed - set(scene.guilty)),
        said=" | ".join(
            f"{s.ranks} {s.link or ''} {s.cause} {s.confidence} {s.evidence}" for s in named.suspects
        ),
    )


def report(verdicts: Sequence[Verdict], *, as_json: bool) -> None:
    """Print a row for every kind and job, and the shares over all."""
    groups: dict[tuple[str, str, str], list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        groups[verdict.scene.job, verdict.scene.kind, verdict.scene.way].append(verdict)
    rows: list[dict[str, Any]] = [
        {
            "job": job,
            "fault": kind,
            "way": way,
            "runs": len(mine),
            "noticed": sum(verdict.is_noticed for verdict in mine),
            "rank right": sum(verdict.is_rank_right for verdict in mine),
            "cause right": sum(verdict.is_cause_right for verdict in mine),
            "victim blamed": sum(verdict.is_victim_blamed for verdict in mine),
        }
        for (job, kind, way), mine in sorted(groups.items())
    ]
    right = sum(verdict.is_right for verdict in verdicts)
    blamed = sum(verdict.is_victim_blamed for verdict in verdicts)
    notes = [
        f"all of it right in {right} of {len(verdicts)} runs ({right / max(1, len(verdicts)):.1%}); "
        f"a victim blamed in {blamed}"
    ]
    show("Who was named, and for what", rows, notes, as_json=as_json)


def report_rival(chosen: Sequence[tuple[Scene, int]], *, as_json: bool) -> None:
    """Run scenes under TraceML, one by one, and print how often it named the rank and the cause."""
    groups: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    with progress() as bar:
        for scene, _ in bar.track(chosen, description="TraceML"):
            with tempfile.TemporaryDirectory() as folder:
                verdict = rival.judge(scene, Path(folder))
            is_rank_right = verdict.rank is not None and (verdict.rank,) == scene.guilty
            groups[scene.kind].append((is_rank_right, is_rank_right and verdict.cause == scene.cause))
    rows: list[dict[str, Any]] = [
        {
            "fault": kind,
            "runs": len(mine),
            "rank right": sum(rank for rank, _ in mine),
            "cause right": sum(cause for _, cause in mine),
        }
        for kind, mine in sorted(groups.items())
    ]
    notes = ["TraceML's summary of the whole run, on the script with its steps marked for it"]
    show("TraceML on the same scenes", rows, notes, as_json=as_json)


def report_healthy(verdicts: Sequence[Verdict], *, as_json: bool) -> None:
    """Print how many healthy runs were left alone."""
    alarms = [verdict for verdict in verdicts if not verdict.is_quiet]
    rows = [
        {
            "healthy runs": len(verdicts),
            "steps each": STEPS,
            "with an alarm": len(alarms),
            "while the machine itself was slow": sum(bool(verdict.host) for verdict in alarms),
        }
    ]
    notes = [f"{verdict.scene.job}: {verdict.said} {verdict.host}".rstrip() for verdict in alarms]
    show("False alarms", rows, notes, as_json=as_json)


def parse() -> argparse.Namespace:
    """Return the options."""
    made = parser(__doc__)
    made.add_argument("--seeds", type=int, default=5)
    made.add_argument("--only", default="", help="scenes whose kind has this in its name")
    made.add_argument("--job", default="", help="jobs with this in their name")
    made.add_argument("--way", default="", help="lab or script")
    made.add_argument("--healthy", type=int, default=0, help="so many healthy runs instead")
    made.add_argument("--traceml", action="store_true", help="the scenes of the loop under TraceML instead")
    made.add_argument("--keep", type=Path, help="a folder for the run directories of what went wrong")
    made.add_argument(
        "--side-by-side", type=int, default=1, help="runs at a time: more than one disturb each other"
    )
    return made.parse_args()


if __name__ == "__main__":
    main()
