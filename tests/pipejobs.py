"""Pipeline jobs for tests: toy stages and data, and runs of real processes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import holdfast
from crew import open_hub
from holdfast.lab.fork import Job, Lab, Result
from holdfast.lab.mortal import parse_death

TIMEOUT_S = 60.0
"""For a run that hangs; none takes a tenth of it on a machine that does nothing else."""

# --- toys -------------------------------------------------------------------------------------


def data(step: int, pipeline: int, microbatch: int, *, rows: int = 3) -> tuple[Tensor, Tensor]:
    """Return a micro-batch: four numbers in, their sum out."""
    generator = torch.Generator().manual_seed((step * 64 + pipeline) * 64 + microbatch)
    inputs = torch.randn(rows, 4, generator=generator)
    return inputs, inputs.sum(1, keepdim=True)


def square_loss(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean of squared differences."""
    return (output - target).square().mean()


def make_pipeline(stages: Sequence[Callable[[], Any]], **changed: Any) -> holdfast.Pipeline:
    """Open a pipeline over the toy data, changed where asked."""
    usual: dict[str, Any] = {
        "loss": square_loss,
        "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
        "data": data,
        "microbatches": 4,
    }
    return holdfast.Pipeline(stages, **(usual | changed))


def first_stage() -> nn.Module:
    """Return a stage that four numbers go into and come out of."""
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh())


def last_stage() -> nn.Module:
    """Return a stage that four numbers go into and one comes out of."""
    return nn.Sequential(nn.Linear(4, 1))


# --- runs of real processes -------------------------------------------------------------------


class Ran(NamedTuple):
    """What became of a job."""

    result: Result
    stops: list[str]
    """Why the controller ended it, if it did."""

    @property
    def digests(self) -> dict[int, str]:
        """Of the parameters of every rank that came to its end."""
        return {rank: found[0] for rank, found in self._found(r"digest (\w+)").items()}

    @property
    def losses(self) -> list[str]:
        """As they were told; by whoever told them, alike."""
        told = self._found(r"^step \d+ loss (\S+)$")
        alike = {tuple(told[rank]) for rank in told if self.result.exit_codes[rank] == 0}
        assert len(alike) == 1, self.story
        return list(alike.pop())

    @property
    def story(self) -> str:
        """Everything, for a test that failed."""
        logs = enumerate(zip(self.result.exit_codes, self.result.logs, strict=True))
        return "\n".join([*self.stops, *(f"--- rank {rank}, {code}\n{log}" for rank, (code, log) in logs)])

    def _found(self, pattern: str) -> dict[int, list[str]]:
        found = {r: re.findall(pattern, log, re.MULTILINE) for r, log in enumerate(self.result.logs)}
        return {rank: words for rank, words in found.items() if words}


@contextmanager
def open_lab() -> Iterator[Lab]:
    """Open a lab whose workers can import this module, and what it imports."""
    before = os.environ.get("PYTHONPATH")
    tests = Path(__file__).parent
    folders = [str(tests), str(tests.parent / "benchmarks"), before]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    try:
        with Lab() as lab:
            yield lab
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def run(lab: Lab, module: str, ranks: int, *args: str, has_hub: bool = True) -> Ran:
    """Run a job to its end, beside a hub as ``holdfast run`` has one."""
    stops: list[str] = []
    with open_hub(stops) as env:
        job = Job(module=module, ranks=ranks, args=list(args), env=env if has_hub else {})
        return Ran(lab.run(job, timeout_s=TIMEOUT_S, grace_s=TIMEOUT_S), stops)


def train(lab: Lab, dp: int, pp: int, *args: str, die: Sequence[str] = (), steps: int = 6) -> Ran:
    """Train the lab's small GPT; a survivor tells the losses."""
    mortal = {parse_death(word).rank for word in die}
    teller = min(set(range(dp * pp)) - mortal, default=0)
    deaths = ["--die", *die] if die else []
    usual = ["--pp", str(pp), "--steps", str(steps), "--microbatches", "3", "--width", "16", "--length", "8"]
    return run(lab, "holdfast.lab.jobs.adaptive", dp * pp, *usual, "--teller", str(teller), *args, *deaths)


def check_survived(ran: Ran, like: Ran, *, pp: int, dead: Sequence[int] = ()) -> None:
    """Fail unless exactly these died, and all others ended with the losses and the bits of another run."""
    codes = [-9 if rank in dead else 0 for rank in range(len(ran.result.exit_codes))]
    assert ran.result.exit_codes == codes, ran.story
    stages = {rank % pp: digest for rank, digest in like.digests.items()}
    assert ran.digests == {r: stages[r % pp] for r, code in enumerate(codes) if code == 0}, ran.story
    assert ran.losses == like.losses, ran.story
