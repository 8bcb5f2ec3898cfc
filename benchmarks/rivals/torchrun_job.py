"""torchrun: one of N ranks is killed -9; how long until the restarted job is where it was?

All workers are started again and resume from a checkpoint on tmpfs, made every 10 steps. The steps since
then are made again: ``pause_s`` counts them, ``first_step_s`` does not. The job names its store by attempt,
without which a restart on gloo can meet addresses of dead ranks: this is torchrun at its best.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from rivals import scene
from rivals.pause import Pause, judge, read_notes

EVERY = 10
"""Steps from checkpoint to checkpoint."""
TUNED_FLAGS = ["--monitor-interval=0.01"]
"""Torchrun looks at its workers ten times a second by default."""
PATIENCE_S = 120.0


def measure(*, workers: int, steps: int, kill_at_s: float | None, seed: int, tuned: bool) -> Pause:
    """Run the job, kill one rank ``kill_at_s`` after the warm-up (drawn if None), and say what it cost."""
    with scene.run_folder() as folder:
        launcher = scene.start(folder, "torchrun", _command(folder, workers, steps, seed, tuned))
        scene.wait_until_warm(folder, workers)
        time.sleep(scene.moment_s(seed, kill_at_s))
        pid = int((folder / f"pid.0.{scene.victim(seed, workers)}").read_text())
        kill_s = scene.kill(pid)
        ended = scene.wait_until(lambda: launcher.poll() is not None, PATIENCE_S)
        notes = read_notes(folder)
        attempts = 1 + max(note.group for note in notes)
        remark = f"checkpoint every {EVERY} steps on tmpfs, store named by attempt, {attempts} attempts"
        if not ended or launcher.returncode:
            remark += f"; {scene.tail(folder)}"
        return judge(
            "torchrun tuned" if tuned else "torchrun",
            notes,
            kill_s,
            finished=ended and launcher.returncode == 0,
            remark=remark,
        )


def _command(folder: Path, workers: int, steps: int, seed: int, tuned: bool) -> list[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts=3"]
    command += [*(TUNED_FLAGS if tuned else []), f"--nproc-per-node={workers}"]
    job = [str(scene.HERE / "torchrun_worker.py"), f"--folder={folder}"]
    return [*command, *job, f"--steps={steps}", f"--seed={seed}", f"--every={EVERY}"]


if __name__ == "__main__":
    scene.run_main(__doc__, measure)
