"""Root causes from profiles of real runs: the fault classes of EROICA's cases, and who else would find them.

Each scene is a job of real processes with something wrong in it, profiled while it runs by ``holdfast
profile``. Beside our verdict stand EROICA's rule, an HTA-like finder of stragglers and an NVRx-like score, on
the same profiles. ``--only`` chooses scenes, ``--seeds`` how many of each; ``reading`` and ``end_to_end`` are
parts of their own (``--part``).
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from common import parser, progress, show
from holdfast.diagnose.case import Case
from holdfast.diagnose.verdict import judge_as_published
from holdfast.findings import Suspect
from profiled import reading, responding
from profiled.rivals import latest_starters, low_scores, read_all
from profiled.running import Run, RunError, run
from profiled.scenes import Scene, scenes

PARTS = ("scenes", "reading", "end_to_end")


@dataclass(frozen=True)
class Tally:
    """What one tool said of a run."""

    is_right: bool
    """Who and what, or nothing where nothing is wrong."""
    named: int
    good: int
    """Of those named, how many are to blame."""


@dataclass(frozen=True)
class Outcome:
    """All tools on one run."""

    scene: Scene
    seed: int
    tools: dict[str, Tally] = field(default_factory=dict)
    took_s: float = 0.0
    blocked_s: float = 0.0
    said: str = ""


def main() -> None:
    """Run the scenes and print the table, or another part."""
    options = parse()
    if options.part == "reading":
        reading.report(as_json=options.json)
        return
    if options.part == "end_to_end":
        responding.report(options.seeds, as_json=options.json)
        return
    chosen = [
        (scene, seed)
        for seed in range(options.seed, options.seed + options.seeds)
        for scene in scenes(seed)
        if options.only in scene.kind
    ]
    outcomes = []
    with progress() as bar:
        for scene, seed in bar.track(chosen, description="scenes"):
            outcome = play(scene, seed, options.keep)
            outcomes.append(outcome)
            ours_said = outcome.tools["holdfast"]
            told = "right" if ours_said.is_right else "WRONG"
            if not ours_said.is_right or ours_said.good < ours_said.named:
                told += f": {outcome.said}"
            print(f"seed {seed} {scene.kind}: {told}", file=sys.stderr, flush=True)
    report(outcomes, as_json=options.json)


def play(scene: Scene, seed: int, keep: Path | None) -> Outcome:
    """Run a scene; the run directory of one that went wrong may be kept."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        try:
            outcome = judge(scene, seed, run(scene, run_dir))
        except RunError as error:
            outcome = Outcome(scene, seed, {"holdfast": Tally(False, 0, 0)}, said=str(error))
        if keep is not None and not outcome.tools["holdfast"].is_right and run_dir.is_dir():
            shutil.copytree(run_dir, keep / f"{seed}-{scene.kind.replace(' ', '_')}", dirs_exist_ok=True)
    return outcome


def judge(scene: Scene, seed: int, found: Run) -> Outcome:
    """Hold what each tool says against the truth."""
    tools = {"holdfast": ours(scene, found.suspects)}
    if found.case is not None:
        tools |= theirs(scene, found.case)
    return Outcome(
        scene=scene,
        seed=seed,
        tools=tools,
        took_s=found.took_s,
        blocked_s=(found.case.blocked_s or 0.0) if found.case is not None else 0.0,
        said=" | ".join(f"{s.ranks} {s.cause} {s.function} {s.evidence[:1]}" for s in found.suspects),
    )


def ours(scene: Scene, suspects: Sequence[Suspect]) -> Tally:
    """Judge our verdict: who and why."""
    good = sum(
        suspect.cause in scene.causes and set(suspect.ranks) <= set(scene.guilty) for suspect in suspects
    )
    if not scene.causes:
        return Tally(not suspects, len(suspects), 0)
    first = suspects[0] if suspects else None
    is_right = first is not None and set(first.ranks) == set(scene.guilty) and first.cause in scene.causes
    return Tally(is_right, len(suspects), good)


def theirs(scene: Scene, case: Case) -> dict[str, Tally]:
    """Judge the others, who name functions or ranks: any of theirs that is right will do."""
    guilty = set(scene.guilty)
    published = judge_as_published(case.workers, case.known, np.random.default_rng(0))
    good = [
        set(ranks) == guilty and bool(re.search(scene.function, function)) and bool(scene.function)
        for function, ranks in published
    ]
    traces = read_all(case.traces)
    late = latest_starters(traces, max(1, len(guilty)))  # How many there are, it is told.
    low = low_scores(traces)
    return {
        "EROICA's rule": Tally(any(good) if scene.causes else not good, len(good), sum(good)),
        "HTA-like": _ranks_only(scene, late),
        "NVRx-like": _ranks_only(scene, low),
    }


def _ranks_only(scene: Scene, named: Sequence[int]) -> Tally:
    """Judge a tool that names ranks: those who are hurt for themselves are right, whatever the cause."""
    is_everybody = len(scene.guilty) == scene.ranks
    good = 0 if is_everybody else len(set(named) & set(scene.guilty))
    is_right = not is_everybody and set(named) == set(scene.guilty)
    return Tally(is_right if scene.causes else not named, len(named), good)


def report(outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    """Print how often each tool was right in each kind of scene, and over all."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.scene.kind].append(outcome)
    tools = ("holdfast", "EROICA's rule", "HTA-like", "NVRx-like")
    rows: list[dict[str, Any]] = [
        {
            "scene": kind,
            "runs": len(mine),
            **{tool: sum(each.tools[tool].is_right for each in mine if tool in each.tools) for tool in tools},
            "verdict after, s": round(float(np.median([each.took_s for each in mine])), 1),
            "training blocked, s": round(float(np.median([each.blocked_s for each in mine])), 2),
        }
        for kind, mine in groups.items()
    ]
    notes = []
    for tool in tools:
        mine = [each.tools[tool] for each in outcomes if tool in each.tools]
        named, good = sum(each.named for each in mine), sum(each.good for each in mine)
        right = sum(each.is_right for each in mine)
        precision = f"{good / named:.3f}" if named else "of nobody"
        notes.append(
            f"{tool}: right in {right} of {len(mine)} runs ({right / max(1, len(mine)):.1%}), "
            f"precision {precision} ({good} of {named} named)"
        )
    notes += [
        "right: who and why, or nobody where nothing is wrong; of others, any function or rank that is",
        "a stuck rank has no profile: what is told is the hang's suspect, and the others have nothing to see",
        "CPU with gloo; accelerators emulated but for two ranks with a core each",
    ]
    show("Root causes from profiles", rows, notes, as_json=as_json)


def parse() -> argparse.Namespace:
    """Return the options."""
    made = parser(__doc__)
    made.add_argument("--part", choices=PARTS, default=PARTS[0])
    made.add_argument("--only", default="", help="scenes whose name has this in it")
    made.set_defaults(seed=1)
    made.add_argument("--seeds", type=int, default=1)
    made.add_argument("--keep", type=Path, help="a folder for the run directories of what went wrong")
    return made.parse_args()


if __name__ == "__main__":
    main()
