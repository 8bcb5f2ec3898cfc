"""``holdfast.Pipeline``: train a model cut into stages on dp x pp workers, through the deaths of any of them.

The dead worker's micro-batches are computed by its peers of the same stage; data, randomness and the
mathematics stay as they were, with ``exact=True`` to the last bit.
"""

from __future__ import annotations

import atexit
import gc
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast.commit import Tally
from holdfast.errors import InputError
from holdfast.job import build, checkpoint, lastwords, probe, selfcheck
from holdfast.job.attach import RINGS_ENV
from holdfast.job.engine import Engine
from holdfast.job.flow import Flow
from holdfast.job.member import AllDoneError, join
from holdfast.job.options import Data, Loss, PipelineSettings
from holdfast.job.place import find_place
from holdfast.job.points import Listener, Points
from holdfast.job.randomness import own_randomness
from holdfast.job.stage import Loss as LossFunction
from holdfast.job.stage import Stage
from holdfast.job.state import State
from holdfast.job.status import Phase, StatusWriter, page_path, publish_schedule
from holdfast.job.sums import ExactSum, FloatSum, GradientSum
from holdfast.membership import Joined, Needs, Regroup
from holdfast.plan.problem import Problem, make_speeds, parse_worker

_sessions = itertools.count()


class Pipeline:
    """One worker's end of a pipeline job; every rank makes the same calls."""

    def __init__(  # noqa: PLR0913 - what a training loop is made of; the rest is in the settings.
        self,
        stages: Sequence[Callable[[], nn.Module]],
        *,
        loss: LossFunction,
        optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        data: Data,
        microbatches: int,
        scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        max_norm: float | None = None,
        exact: bool = False,
        settings: PipelineSettings | None = None,
    ) -> None:
        self.settings = settings or PipelineSettings()
        self.rank, world = find_place(os.environ).rank, int(os.environ.get("WORLD_SIZE", "1"))
        self.pp, self.dp = len(stages), build.shape_of(world, len(stages), microbatches)
        self.is_exact = exact
        self._loss_handles: weakref.WeakValueDictionary[int, Loss] = weakref.WeakValueDictionary()
        self._asked = 0
        self._is_closed = False
        self._announcements: list[tuple[str, str, bytes]] = []
        self._device = torch.device(self.settings.device)
        needs = self._needs(microbatches)
        module = build.build(stages, self.rank % self.pp, seed=self.settings.seed, device=self._device)
        if self.rank == 0:  # After its own: builders may share a model that the first of them makes.
            build.refuse_shared(stages)
        self._stage = Stage(
            module,
            self.rank % self.pp,
            loss=loss if self.rank % self.pp == self.pp - 1 else None,
            scale=1.0 / (self.dp * microbatches),
            autocast=self.settings.autocast,
        )
        self._load = probe.Loader(data, self._device)
        self._engine = self._start(needs, optimizer, scheduler, max_norm)
        self._open()

    # --- what a script calls ------------------------------------------------------------------

    @property
    def module(self) -> nn.Module:
        """The stage that this worker holds."""
        return self._stage.module

    @property
    def step_number(self) -> int:
        """The step that the next call computes; not 0 after a checkpoint was loaded."""
        return self._asked

    @property
    def workers(self) -> list[str]:
        """The workers that are left, written ``pipeline.stage``."""
        return [f"{rank // self.pp}.{rank % self.pp}" for rank in self._engine.members]

    @property
    def is_leader(self) -> bool:
        """True on one worker that is alive: the one to print and to log."""
        return self.rank == self._engine.members[0]

    @property
    def learning_rate(self) -> float:
        """Of the first parameter group, for the next step."""
        return float(self._state.optimizer.param_groups[0]["lr"])

    @property
    def pauses_s(self) -> list[float]:
        """How long each recovery kept this worker from training, from seeing the loss until it went on."""
        return list(self._engine.recoveries)

    def step(self) -> Loss:
        """Train one step, through whatever dies meanwhile, and return its loss."""
        loss = Loss(self, self._asked)
        self._loss_handles[self._asked] = loss
        self._asked += 1
        while self._state.position < self._asked:
            self._engine.attempt(self._engine.advance)
        self._engine.points.enter(Phase.OUTSIDE)
        return loss

    def settle(self) -> None:
        """Wait until every step that was asked for is computed and final."""
        while not self._is_settled():
            if self._state.position < self._asked:
                self._engine.attempt(self._engine.advance)
            else:
                self._engine.attempt(self._settle_once)
        self._engine.points.enter(Phase.OUTSIDE)

    def evaluate(self, data: Data, microbatches: int) -> float:
        """Return the mean loss over micro-batches of other data, given by the same kind of function."""
        if microbatches < 1:
            raise InputError(f"microbatches is {microbatches}, expected 1 or more")
        self.settle()
        load = probe.Loader(data, self._device)
        found: list[float] = []

        def work() -> None:
            found[:] = self._engine.evaluate(load, microbatches, self._asked)

        # Modules that the script keeps out of training stay so.
        training = [each for each in self.module.modules() if each.training]
        self.module.eval()
        try:
            while not self._engine.attempt(work):
                pass
        finally:
            for each in training:
                each.training = True
        self._engine.points.enter(Phase.OUTSIDE)
        return sum(found) / len(found)

    def self_check(self, repeats: int = 2) -> None:
        """Raise ``InputError`` if this worker's stage gives different bits when a micro-batch is repeated.

        Made once at the start of an exact run; call it with more repeats to look harder. Talks to nobody.
        """
        selfcheck.check_stage(self._stage, *self._sample, repeats=repeats)

    def rebalance(self, speeds: dict[str, float]) -> None:
        """Plan again for these speeds (``{"1.2": 0.5}``: half as fast); 1 for who is not named."""
        changed = {parse_worker(name): speed for name, speed in speeds.items()}
        # Raises here, at the script's own call, if that is no job.
        Problem(dp=self.dp, pp=self.pp, microbatches=1, speeds=make_speeds(self.dp, self.pp, changed))
        self.settle()
        self._engine.regroup(speeds=dict(speeds))
        self._engine.points.enter(Phase.OUTSIDE)

    def save(self, folder: str | Path) -> None:
        """Write a checkpoint, whole or not at all; every rank calls it, one per stage writes.

        Raises ``OSError`` on all ranks alike if any could not write; training can go on after it.
        """
        self.settle()
        failures: list[str] = []
        while not self._engine.attempt(lambda: self._save_once(Path(folder), failures)):
            failures.clear()
        self._engine.points.enter(Phase.OUTSIDE)
        if failures:
            raise OSError(f"{folder} was not saved: {failures[0]}")

    def load(self, folder: str | Path) -> None:
        """Go on from a checkpoint; before the first step, on every rank."""
        if self._asked:
            raise InputError(f"load was called after {self._asked} steps, expected before the first")
        description = checkpoint.read_description(Path(folder))
        if (description.stages, description.exact) != (self.pp, self.is_exact):
            raise InputError(
                f"{folder} holds {description.stages} stages with exact={description.exact}, "
                f"expected {self.pp} with exact={self.is_exact}"
            )
        content = checkpoint.read_stage(Path(folder), self._stage.number)
        # Nobody takes it over before all have read it: should one die meanwhile, all are still at 0.
        while not self._engine.attempt(lambda: self._check_step(Path(folder), description.step)):
            pass
        self._take_over(Path(folder), content, description.step)
        self._asked = description.step
        self._engine.points.enter(Phase.OUTSIDE)

    def close(self) -> None:
        """Finish: settle the last step and leave; called at the end of the script if it is not before."""
        if self._is_closed:
            return
        self.settle()
        with suppress(AllDoneError):
            while not self._engine.attempt(self._engine.meet):
                pass
        self._is_closed = True
        self._engine.leave()
        gc.unfreeze()  # What was opened can be freed again.

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: Any, *rest: object) -> None:
        if kind is None:
            self.close()
        elif not self._is_closed:
            self._is_closed = True
            self._engine.give_up()

    # --- how it is put together ---------------------------------------------------------------

    @property
    def _state(self) -> State:
        assert self._engine.state is not None
        return self._engine.state

    def _needs(self, microbatches: int) -> Needs:
        return Needs(
            dp=self.dp,
            pp=self.pp,
            microbatches=microbatches,
            fault_free=self.settings.fault_free,
            costs=tuple(self.settings.costs),
            comm=self.settings.comm,
        )

    def _start(self, needs: Needs, optimizer: Any, scheduler: Any, max_norm: float | None) -> Engine:
        parameters = self._stage.parameters
        terms = needs.dp * needs.microbatches
        sums: GradientSum = ExactSum(parameters, terms=terms) if self.is_exact else FloatSum(parameters)
        made = optimizer(parameters)
        state = State(parameters, made, scheduler(made) if scheduler else None, sums, max_norm=max_norm)
        member = join(Joined(rank=self.rank, needs=needs), session=next(_sessions), env=os.environ)
        engine = Engine(self.rank, needs, member, self._points(), self._device)
        engine.state, engine.sums, engine.load = state, sums, self._load
        engine.is_staggered = self.settings.is_staggered
        engine.on_tally, engine.on_regroup = self._hear, self._publish
        return engine

    def _points(self) -> Points:
        listeners: Sequence[Listener] = self.settings.listeners
        rings = os.environ.get(RINGS_ENV)
        if rings is None:
            return Points(listeners, None)
        page = StatusWriter(page_path(Path(rings), self.rank), rank=self.rank, pp=self.pp, dp=self.dp)
        return Points(listeners, page)

    def _open(self) -> None:
        engine = self._engine
        engine.regroup()
        while not engine.attempt(self._probe):
            pass
        if self.settings.memory_bytes is not None:
            engine.regroup(cap=self._cap(self.settings.memory_bytes))
        lastwords.say_survives()
        self._say_what_a_death_means()
        atexit.register(_close_at_exit, weakref.ref(self))
        # So that collections, also the one of a recovery, need not look at what torch has brought.
        gc.collect()
        gc.freeze()
        engine.points.enter(Phase.OUTSIDE)

    def _say_what_a_death_means(self) -> None:
        """Say once, on one rank, if the first death will end the job."""
        if self.rank != 0 or self.dp * self.pp == 1:
            return
        if self.dp == 1:
            reason = "dp is 1, so no worker has a peer that holds the same parameters"
        elif not self._engine.survives:
            reason = "the launcher is not `holdfast run`"
        else:
            return
        sys.stderr.write(f"holdfast: {reason}: the death of any worker ends the training\n")

    def _probe(self) -> None:
        engine = self._engine
        engine.points.enter(Phase.EVALUATE)
        with own_randomness(self._device):
            probed = probe.probe(
                self._stage,
                self._load,
                engine.store("forms"),
                step=self._asked,
                pipeline=self.rank // self.pp,
            )
        self.activation_bytes = probed.activation_bytes
        self._announcements = [("forms", str(self._stage.number), probe.encode(probed.forms.outgoing))]
        self._sample = probed.sample
        if self.is_exact:
            self.self_check()
        self._check_alike()
        engine.use(Flow(self._stage, probed.forms, engine.points, seed=self.settings.seed))

    def _check_alike(self) -> None:
        """Refuse peers that start from different parameters."""
        digest = build.digest_of(self.module)
        peers = [rank for rank in self._engine.members if rank % self.pp == self._stage.number]
        store = self._engine.store(f"digest{self._stage.number}")
        self._announcements.append((f"digest{self._stage.number}", "0", digest.encode()))
        if self.rank == peers[0]:
            store.set("0", digest.encode())
        elif store.get("0").decode() != digest:
            raise InputError(
                f"stage {self._stage.number}: rank {self.rank} starts from other parameters than rank "
                f"{peers[0]}: its builder must not depend on the rank or on an unseeded generator"
            )

    def _cap(self, memory_bytes: int) -> int:
        """Return how many micro-batches fit beside the state: parameters, gradients, optimizer, shadow."""
        size = sum(each.numel() * each.element_size() for each in self._stage.parameters)
        copies = 2 + 2  # Parameters, the reduced gradient; two values of the optimizer, as Adam has.
        copies += 3 if self.settings.is_staggered else 0
        copies += 3 if self.is_exact else 1
        left = memory_bytes - copies * size
        cap = left // max(self.activation_bytes, 1)
        if cap < 1:
            raise InputError(
                f"memory_bytes is {memory_bytes}, but stage {self._stage.number} needs {copies * size} for "
                f"its state and {self.activation_bytes} for a micro-batch"
            )
        return cap

    def _hear(self, step: int, tally: Tally) -> None:
        handle = self._loss_handles.get(step)
        if handle is not None:
            handle.set(tally.loss)

    def _publish(self, regroup: Regroup) -> None:
        """Tell the guard what is to be done, and those who are still opening what they need to know."""
        for name, key, value in self._announcements:
            self._engine.store(name).set(key, value)
        if rings := os.environ.get(RINGS_ENV):
            publish_schedule(Path(rings), regroup.generation, regroup.schedule)

    def _is_settled(self) -> bool:
        return self._state.version >= self._asked and not self._engine.is_open

    def _settle_once(self) -> None:
        self._engine.settle()

    def _check_step(self, folder: Path, step: int) -> None:
        found = self._engine.gather(step)
        if set(found) != {step}:
            raise InputError(f"{folder} is of step {step} here, but the ranks found steps {found}")

    def _take_over(self, folder: Path, content: dict[str, Any], step: int) -> None:
        try:
            self.module.load_state_dict(content["module"])
            self._state.load(content["state"], step)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            # torch names what is missing or of another size, over many lines.
            words = " ".join(str(error).split())
            raise InputError(
                f"{checkpoint.stage_file(folder, self._stage.number)} does not fit stage "
                f"{self._stage.number}: {type(error).__name__}: {words}"
            ) from error

    def _save_once(self, folder: Path, failures: list[str]) -> None:
        engine = self._engine
        engine.points.enter(Phase.SAVE)
        content = {"module": self.module.state_dict(), "state": self._state.save()}
        description = checkpoint.Description(step=self._asked, stages=self.pp, exact=self.is_exact)
        number = self._stage.number
        peers = [rank for rank in engine.members if rank % self.pp == number]
        for writer, write in (
            (peers[0], lambda: checkpoint.write_stage(folder, number, content)),
            (engine.members[0], lambda: checkpoint.finish(folder, description)),
        ):
            mine = checkpoint.failure_of(write) if self.rank == writer else None
            # All learn of it: a rank that raised alone would look dead, and a peer would try in its place.
            failed = engine.gather(mine is not None)
            if any(failed):
                failures.append(mine or f"rank {engine.members[failed.index(1)]} could not write its part")
                return


def _close_at_exit(reference: weakref.ref[Pipeline]) -> None:
    pipeline = reference()
    if pipeline is not None and not lastwords.has_failed():
        pipeline.close()
