"""``holdfast.Pipeline``: train a model cut into stages on dp x pp workers, through the deaths of any of them.

The dead worker's micro-batches are computed by its peers of the same stage; data, randomness and the
mathematics stay as they were, with ``exact=True`` to the last bit.
"""

from __future__ import annotations

import atexit
import gc
import itertools
import math
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast.commit import Tally
from holdfast.errors import InputError
from holdfast.job import build, lastwords
from holdfast.job.archive import Archive
from holdfast.job.cadence import Cadence
from holdfast.job.engine import Engine
from holdfast.job.joint import Outcome
from holdfast.job.member import AllDoneError, HubMember, Member, join
from holdfast.job.messages import HUB_ENV, NEWCOMER_ENV, TOKEN_ENV
from holdfast.job.moving import Moving
from holdfast.job.opening import Opening
from holdfast.job.options import Data, Loss, PipelineSettings
from holdfast.job.place import find_place
from holdfast.job.probe import Loader
from holdfast.job.publishing import make_points, publish
from holdfast.job.role import Recipe, Role
from holdfast.job.saver import Saver
from holdfast.job.stage import Loss as LossFunction
from holdfast.job.stage import Stage
from holdfast.job.state import State
from holdfast.job.status import Phase
from holdfast.job.steps import Steps
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
        self._is_new = False
        """Whether this worker came later, and has made no step: what the others call between two steps they
        have done by then."""
        self._device = torch.device(self.settings.device)
        needs = self._needs(microbatches)
        self._recipe = Recipe(
            stages=stages,
            loss=loss,
            optimizer=optimizer,
            scheduler=scheduler,
            max_norm=max_norm,
            is_exact=exact,
            terms=self.dp * microbatches,
            autocast=self.settings.autocast,
            seed=self.settings.seed,
            device=self._device,
        )
        # A newcomer is told its place before it builds anything.
        newcomer = self._join_late(needs) if NEWCOMER_ENV in os.environ and HUB_ENV in os.environ else None
        role = self._recipe.make((newcomer.place if newcomer is not None else self.rank) % self.pp)
        if self.rank == 0:  # After its own: builders may share a model that the first of them makes.
            build.refuse_shared(stages)
        member = newcomer or join(
            Joined(rank=self.rank, needs=needs), session=next(_sessions), env=os.environ
        )
        self._load = Loader(data, self._device)
        self._engine = self._start(needs, role, member)
        self._steps = Steps(self._engine, self._load)
        self._opening = Opening(self._load, self._engine, self.settings)
        self._opening.is_exact = exact
        self._archive = Archive(self._engine, is_exact=exact)
        self._engine.on_regroup = self._follow
        self._moving = self._make_moving(member)
        self._open(newcomer)

    # --- what a script calls ------------------------------------------------------------------

    @property
    def module(self) -> nn.Module:
        """The stage that this worker holds; another one after a swap."""
        return self._engine.role.stage.module

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
        return self._engine.is_leader

    @property
    def learning_rate(self) -> float:
        """Of the first parameter group, for the next step."""
        return float(self._state.optimizer.param_groups[0]["lr"])

    @property
    def pauses_s(self) -> list[float]:
        """How long each recovery kept this worker from training, from seeing the loss until it went on."""
        return list(self._engine.recoveries)

    @property
    def meetings_s(self) -> list[float]:
        """How long this worker stood still each time that the others were met without a failure."""
        return list(self._engine.meetings)

    @property
    def activation_bytes(self) -> int:
        """What this worker's stage keeps of a micro-batch until its backward is done."""
        return self._opening.activation_bytes

    def step(self) -> Loss:
        """Train one step, through whatever dies meanwhile, and return its loss."""
        self._is_new = False
        if self._engine.is_meeting(self._asked):
            self.settle()
            # A failure meanwhile has brought all together already.
            if self._engine.is_meeting(self._asked):
                self._engine.regroup()
        loss = Loss(self, self._asked)
        self._loss_handles[self._asked] = loss
        self._asked += 1
        while self._state.position < self._asked:
            self._engine.attempt(self._steps.advance)
        self._engine.points.enter(Phase.OUTSIDE)
        return loss

    def settle(self) -> None:
        """Wait until every step that was asked for is computed and final."""
        while not self._is_settled():
            if self._state.position < self._asked:
                self._engine.attempt(self._steps.advance)
            else:
                self._engine.attempt(self._settle_once)
        self._engine.points.enter(Phase.OUTSIDE)

    def evaluate(self, data: Data, microbatches: int) -> float:
        """Return the mean loss over micro-batches of other data, given by the same kind of function.

        A worker that has just come to a job under way is not asked, and gets ``nan``.
        """
        if microbatches < 1:
            raise InputError(f"microbatches is {microbatches}, expected 1 or more")
        if self._is_new:
            return math.nan
        self.settle()
        load = Loader(data, self._device)
        found: list[float] = []

        def work() -> Outcome:
            losses = self._steps.evaluate(load, microbatches, self._asked)
            return Outcome(self._asked, lambda: found.extend(losses))

        # Modules that the script keeps out of training stay so.
        training = [each for each in self.module.modules() if each.training]
        self.module.eval()
        try:
            self._engine.act(work)
        finally:
            for each in training:
                each.training = True
        self._engine.points.enter(Phase.OUTSIDE)
        return sum(found) / len(found)

    def self_check(self, repeats: int = 2) -> None:
        """Raise ``InputError`` if this worker's stage gives different bits when a micro-batch is repeated.

        Made once at the start of an exact run; call it with more repeats to look harder. Talks to nobody.
        """
        self._opening.self_check(repeats)

    def rebalance(self, speeds: dict[str, float]) -> None:
        """Plan again for these speeds (``{"1.2": 0.5}``: half as fast); 1 for who is not named."""
        changed = {parse_worker(name): speed for name, speed in speeds.items()}
        # Raises here, at the script's own call, if that is no job.
        Problem(dp=self.dp, pp=self.pp, microbatches=1, speeds=make_speeds(self.dp, self.pp, changed))
        if self._is_new:
            return
        self.settle()
        self._engine.regroup(speeds=dict(speeds))
        self._engine.points.enter(Phase.OUTSIDE)

    def swap(self, first: str, second: str) -> None:
        """Let two workers, written ``pipeline.stage``, exchange their places; every rank calls it.

        Each sends the other its stage's state. Nothing happens where one of them is gone. What a script keeps
        of ``module`` is another stage's afterwards.
        """
        for name in (first, second):
            make_speeds(self.dp, self.pp, {parse_worker(name): 1.0})  # Raises here if there is no such place.
        if self._is_new:
            return
        self.settle()
        self._engine.regroup(swap=(first, second))
        self._engine.points.enter(Phase.OUTSIDE)

    def save(self, folder: str | Path) -> None:
        """Write a checkpoint, whole or not at all; every rank calls it, one per stage writes.

        Raises ``OSError`` on all ranks alike if any could not write; training can go on after it.
        """
        if self._is_new:
            return
        self.settle()
        failure = self._archive.save(Path(folder), self._asked)
        self._engine.points.enter(Phase.OUTSIDE)
        if failure is not None:
            raise OSError(f"{folder} was not saved: {failure}")

    def load(self, folder: str | Path) -> None:
        """Go on from a checkpoint; before the first step, on every rank."""
        if self._is_new:
            return
        if self._asked:
            raise InputError(f"load was called after {self._asked} steps, expected before the first")
        self._asked = self._archive.load(Path(folder))
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
        return self._engine.state

    @property
    def _stage(self) -> Stage:
        return self._engine.role.stage

    def _needs(self, microbatches: int) -> Needs:
        return Needs(
            dp=self.dp,
            pp=self.pp,
            microbatches=microbatches,
            fault_free=self.settings.fault_free,
            costs=tuple(self.settings.costs),
            comm=self.settings.comm,
        )

    def _join_late(self, needs: Needs) -> HubMember:
        """Join a job that is under way, and return when there is a place."""
        joined = Joined(rank=self.rank, needs=needs, is_newcomer=True)
        member = join(joined, session=next(_sessions), env=os.environ)
        assert isinstance(member, HubMember)
        with _leaving_when_over(self.rank):
            member.wait_for_place()
        return member

    def _start(self, needs: Needs, role: Role, member: Member) -> Engine:
        points = make_points(self.settings.listeners, rank=self.rank, pp=self.pp, dp=self.dp)
        engine = Engine(self.rank, needs, member, points, self._device)
        engine.role = role
        engine.is_staggered = self.settings.is_staggered
        engine.on_tally = self._hear
        engine.donors.token = os.environ.get(TOKEN_ENV, "")
        return engine

    def _make_moving(self, member: Member) -> Moving:
        engine = self._engine
        moving = Moving(engine, self._recipe, host=member.host, token=engine.donors.token)
        moving.take, moving.take_over = self._take_role, self._opening.take_over
        engine.on_move, engine.on_final, engine.on_void = moving.follow, moving.forget, moving.wake
        return moving

    def _take_role(self, role: Role) -> None:
        self._engine.donors.close()  # Whoever was fed from the stage before has to find another donor.
        self._engine.role = role

    def _open(self, newcomer: HubMember | None) -> None:
        engine = self._engine
        folder = Path(self.settings.checkpoints) if self.settings.checkpoints is not None else None
        if newcomer is None:
            self._opening.begin()
            self._asked = self._opening.resume(folder) if folder is not None else 0
        else:
            engine.place = newcomer.place
            self._is_new = True
            with _leaving_when_over(self.rank):
                self._asked = self._opening.enter(newcomer, os.environ.get(TOKEN_ENV, ""))
        if folder is not None:
            mttf_h = self.settings.mttf_h
            every = None if mttf_h is not None else self.settings.checkpoint_every
            cadence = Cadence(every, mttf_s=None if mttf_h is None else 3600 * mttf_h)
            engine.saver = Saver(folder, cadence, self._archive.describe)
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

    def _hear(self, step: int, tally: Tally) -> None:
        handle = self._loss_handles.get(step)
        if handle is not None:
            handle.set(tally.loss)

    def _follow(self, regroup: Regroup) -> None:
        """Tell those who are still opening what they need to know, and the guard what is to be done."""
        self._opening.announce()
        publish(self._engine, regroup)

    def _is_settled(self) -> bool:
        return self._state.version >= self._asked and not self._steps.is_open

    def _settle_once(self) -> None:
        self._steps.settle()


@contextmanager
def _leaving_when_over(rank: int) -> Iterator[None]:
    """End this process, without an error, if there is nothing left to take part in."""
    try:
        yield
    except AllDoneError:
        sys.stderr.write(f"holdfast: the job ended before rank {rank} could take part in it\n")
        raise SystemExit(0) from None


def _close_at_exit(reference: weakref.ref[Pipeline]) -> None:
    pipeline = reference()
    if pipeline is not None and not lastwords.has_failed():
        pipeline.close()
