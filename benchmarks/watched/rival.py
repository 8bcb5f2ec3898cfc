"""TraceML on the same scenes: a script that marks its steps for it, and the verdict of its summary."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from watched.running import HERE, environment
from watched.scenes import Scene

TRACEML = Path(sys.executable).parent / "traceml"
STEPS = 150
_CAUSES = {"INPUT": "data_loading", "COMPUTE": "compute", "WAIT": "link", "RESIDUAL": "unknown"}


@dataclass(frozen=True)
class Verdict:
    """What TraceML said."""

    rank: int | None
    cause: str | None
    said: str


def can_judge(scene: Scene) -> bool:
    """Say whether a scene's script marks its steps, which TraceML needs."""
    return scene.job == "loop" and scene.way == "script" and "hang" not in scene.kind


def judge(scene: Scene, folder: Path) -> Verdict:
    """Run a scene to its end under TraceML and return its verdict."""
    command = [str(TRACEML), "run", f"watched/{scene.job}.py", "--mode", "summary"]
    command += ["--logs-dir", str(folder), "--run-name", "run", "--nproc-per-node", str(scene.ranks)]
    command += ["--aggregator-port", "29871", "--master-port", "29872"]
    process = subprocess.Popen(
        [*command, "--args", *scene.arguments, "--steps", str(STEPS), "--traceml"],
        cwd=HERE,
        env=os.environ | environment(scene),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(150)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    try:
        found = json.loads((folder / "run" / "final_summary.json").read_text())["primary_diagnosis"]
    except (OSError, ValueError, KeyError):
        return Verdict(None, None, "no summary")
    kind = str(found.get("kind", ""))
    is_straggler = "STRAGGLER" in kind
    worst = ((found.get("evidence") or {}).get("worst") or {}).get("rank")
    cause = next((mine for word, mine in _CAUSES.items() if word in kind), None)
    return Verdict(worst if is_straggler else None, cause if is_straggler else None, kind)
