"""One worker of a pipeline job: steps, and what happens when a peer is lost in the middle of one.

``attempt`` runs a piece of work; when a peer is lost it leaves the generation, agrees with the other
survivors on where to go on, and returns False. No checkpoint is read and no process restarts. Every piece of
work can therefore be repeated, and all state that outlives an attempt is in ``State``.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from holdfast.commit import Tally
from holdfast.job.flow import Flow, Load, Losses
from holdfast.job.member import Member
from holdfast.job.mesh import Mesh, PeerLostError, Work
from holdfast.job.points import Points
from holdfast.job.randomness import own_randomness
from holdfast.job.routes import Instruction, forward_only, instructions
from holdfast.job.state import State
from holdfast.job.status import Phase
from holdfast.job.sums import GradientSum
from holdfast.membership import Needs, Regroup, Reported
from holdfast.plan.ops import Schedule, parse_schedule

_FLAGS = 2
"""Numbers that every stage adds to a tally: sum of squares, overflow."""


class Engine:
    """Trains one stage together with the workers of the others."""

    def __init__(self, rank: int, needs: Needs, member: Member, points: Points, device: torch.device) -> None:
        self.rank = rank
        self.needs = needs
        self.points = points
        self.device = device
        self.generation = -1
        self.members: list[int] = []
        self.schedule: Schedule | None = None
        self.is_staggered = True
        self.recoveries: list[float] = []
        """Seconds from each failure's being seen until this worker could go on."""
        self.on_tally: Callable[[int, Tally], None] = lambda step, tally: None
        """Called with the complete tally of every step whose update has been applied."""
        self.on_regroup: Callable[[Regroup], None] = lambda regroup: None
        self._member = member
        member.on_void = self._hear_void
        self._void_generation = -1
        self._lost = ""
        self._mesh: Mesh | None = None
        self._order: list[Instruction] = []
        self._retry: list[int] | None = None
        self._ahead: tuple[Work | None, Tensor] | None = None
        self.flow: Flow | None = None
        self.state: State | None = None
        self.sums: GradientSum | None = None
        self.load: Load | None = None

    @property
    def survives(self) -> bool:
        """Whether the others go on when a worker dies."""
        return self._member.survives

    @property
    def stage(self) -> int:
        """The stage that this worker holds."""
        return self.rank % self.needs.pp

    # --- generations --------------------------------------------------------------------------

    def attempt(self, work: Callable[[], None]) -> bool:
        """Do a piece of work, and return whether it was done; if not, the next generation stands ready."""
        if self._is_done(work):
            return True
        # Here, not in an except clause: a traceback would hold the groups, and their sockets open.
        self.recover()
        return False

    def regroup(self, *, speeds: dict[str, float] | None = None, cap: int | None = None) -> None:
        """Begin a generation because the scripts want one: all of them, at the same place."""
        self.recover(is_wanted=True, speeds=speeds, cap=cap)

    def recover(
        self,
        *,
        is_wanted: bool = False,
        speeds: dict[str, float] | None = None,
        cap: int | None = None,
    ) -> None:
        """Leave the generation, agree on where to go on, and connect the next; again, until that works."""
        started_s = time.monotonic()
        self._leave()
        while not self._regrouped(is_wanted, speeds, cap):
            is_wanted = False
            self._leave()
        if self.generation > 0:
            self.recoveries.append(time.monotonic() - started_s)

    def use(self, flow: Flow) -> None:
        """Take the flow that goes with what the stages turned out to be."""
        self.flow = flow
        flow.mesh = self._mesh

    @property
    def is_open(self) -> bool:
        """Whether the verdict on the last step is still to come."""
        return self._ahead is not None

    def leave(self) -> None:
        """Say goodbye and drop the connections."""
        self._member.leave()
        if self._mesh is not None:
            self._mesh.close()

    def give_up(self) -> None:
        """Leave without a goodbye, after an error: to the others this worker is dead."""
        self._member.drop()
        if self._mesh is not None:
            self._mesh.close()

    def _is_done(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except PeerLostError as error:
            self._lost = str(error)
            return False
        return True

    def _leave(self) -> None:
        self.points.enter(Phase.REGROUP)
        self.points.reach("regroup")
        if self.flow is not None:
            self.flow.drop()
        self._ahead = None
        self._retry = None
        if self._mesh is not None:
            self._mesh.close()
            self._mesh = None
        # What refers to itself would keep its group; after a freeze this takes no time.
        gc.collect()
        if self.sums is not None:
            self.sums.clear()

    def _regrouped(self, is_wanted: bool, speeds: dict[str, float] | None, cap: int | None) -> bool:
        standing = self._state.standing
        report = Reported(
            rank=self.rank,
            generation=self.generation,
            standing=standing,
            speeds=speeds,
            cap=cap,
            lost="" if is_wanted else self._lost,
        )
        regroup = self._member.regroup(report, is_wanted=is_wanted)
        self._state.adopt(regroup.agreement)
        if regroup.agreement.tally is not None:
            self._tell(regroup.agreement.version - 1, regroup.agreement.tally)
        self.generation = self.points.generation = regroup.generation
        self.members = regroup.members
        self.schedule = parse_schedule(regroup.schedule)
        self._order = instructions(self.schedule, self.rank)
        self.points.order_length = len(self._order)
        self.on_regroup(regroup)
        return self._is_done(self._connect)

    def _connect(self) -> None:
        peers = [rank for rank in self.members if rank % self.needs.pp == self.stage]
        self._mesh = Mesh(rank=self.rank, members=self.members, peers=peers)
        if self._void_generation >= self.generation:  # Heard before there was anything to wake.
            raise PeerLostError("a member left before all were connected")
        self._mesh.connect(self.store)
        if self.flow is not None:
            self.flow.mesh = self._mesh

    def _hear_void(self, generation: int) -> None:
        """Wake this worker, in whatever it waits for; called from the thread that listens."""
        self._void_generation = max(self._void_generation, generation)
        mesh = self._mesh
        if mesh is not None and generation >= self.generation:
            mesh.wake()

    def store(self, name: str) -> Any:
        """Return a store that all members of the generation see."""
        return self._member.store(self.generation, name)

    # --- steps --------------------------------------------------------------------------------

    def advance(self) -> None:
        """Compute a step and commit it; or find that the one before has to be corrected first."""
        state, step = self._state, self._state.position
        assert self.flow is not None
        assert self.load is not None
        assert self.sums is not None
        self.points.step = step
        self.sums.exponents = self._retry or state.exponents
        with own_randomness(self.device):
            losses = self.flow.train(self._order, self.load, self.sums)
        if self.settle():
            self._commit(step, losses)
        else:
            self.sums.clear()  # Computed with parameters that have been corrected since.

    def settle(self) -> bool:
        """Wait for the verdict on the last step, if it is open; return whether what followed stands."""
        if self._ahead is None:
            return True
        assert self._mesh is not None
        work, numbers = self._ahead
        self.points.after_ops(Phase.SETTLE)
        self._mesh.finish_sum(work)
        self._ahead = None
        step, tally = self._state.position - 1, self._unpack(numbers)
        self._state.note(step, tally)
        verdict = self._state.judge(tally)
        self._retry = self._state.retry_exponents() if verdict.is_void else None
        stood = self._state.confirm(verdict)
        if not verdict.is_void:
            self._tell(step, tally)
        return stood

    def _commit(self, step: int, losses: Losses) -> None:
        state, mesh = self._state, self._mesh
        assert mesh is not None
        assert self.sums is not None
        self.points.after_ops(Phase.REDUCE)
        self.points.reach("reduction")
        shared = self._share_losses(losses)
        reduced = self.sums.reduce(mesh)
        self._retry = None
        own = Tally(
            squares={self.stage: reduced.square()},
            overflows={self.stage: reduced.overflowed},
            losses=shared,
        )
        state.prepare(reduced, own)
        self.points.reach("barrier")
        numbers = self._pack(own)
        work = mesh.start_sum(numbers)
        self.points.reach("step")
        if self.is_staggered and state.may_go_ahead:
            state.go_ahead(state.judge(own))
            self._ahead = (work, numbers)
        else:
            self._conclude(step, work, numbers)

    def _conclude(self, step: int, work: Work | None, numbers: Tensor) -> None:
        """Wait for the verdict of all, and do what it says."""
        assert self._mesh is not None
        self.points.after_ops(Phase.SETTLE)
        self._mesh.finish_sum(work)
        tally = self._unpack(numbers)
        self._state.note(step, tally)
        verdict = self._state.judge(tally)
        self._retry = self._state.retry_exponents() if verdict.is_void else None
        self._state.apply(verdict)
        if not verdict.is_void:
            self._tell(step, tally)

    def evaluate(self, load: Load, microbatches: int, step: int) -> list[float]:
        """Return the losses of a pass without updates, pipeline by pipeline."""
        assert self._mesh is not None
        assert self.flow is not None
        schedule = forward_only(self.members, dp=self.needs.dp, pp=self.needs.pp, microbatches=microbatches)
        self.points.step = step
        with own_randomness(self.device), self.points.keeping(Phase.EVALUATE):
            losses = self.flow.evaluate(instructions(schedule, self.rank), load)
            numbers = self._loss_vector(losses, microbatches)
            self._mesh.finish_sum(self._mesh.start_sum(numbers))
        found: list[float] = numbers.tolist()
        return found

    def meet(self) -> None:
        """Wait until every member of the generation is here."""
        assert self._mesh is not None
        self._mesh.finish_sum(self._mesh.start_sum(torch.zeros(1)))

    def gather(self, number: int) -> list[int]:
        """Return what every member of the generation gave, in their order."""
        assert self._mesh is not None
        numbers = torch.zeros(len(self.members), dtype=torch.int64)
        numbers[self.members.index(self.rank)] = number
        self._mesh.finish_sum(self._mesh.start_sum(numbers))
        found: list[int] = numbers.tolist()
        return found

    # --- tallies ------------------------------------------------------------------------------

    @property
    def _state(self) -> State:
        assert self.state is not None
        return self.state

    def _tell(self, step: int, tally: Tally) -> None:
        if tally.is_complete(self.needs.pp):
            self.on_tally(step, tally)

    def _share_losses(self, losses: Losses) -> list[float]:
        """Let every worker of the last stage know all losses: any of them may have to tell them later."""
        if self.stage != self.needs.pp - 1:
            return []
        assert self._mesh is not None
        numbers = self._loss_vector(losses, self.needs.microbatches)
        self._mesh.sum_stage(numbers)
        found: list[float] = numbers.tolist()
        return found

    def _loss_vector(self, losses: Losses, microbatches: int) -> Tensor:
        """Return a place for every loss; those of others are zero, and adding zero changes nothing."""
        numbers = torch.zeros(self.needs.dp * microbatches, dtype=torch.float64)
        for (pipeline, microbatch), loss in losses.items():
            numbers[pipeline * microbatches + microbatch] = loss
        return numbers

    def _pack(self, tally: Tally) -> Tensor:
        """Return what this worker adds to the tally of all: one worker speaks for each stage."""
        pp, losses = self.needs.pp, self.needs.dp * self.needs.microbatches
        numbers = torch.zeros(_FLAGS * pp + losses, dtype=torch.float64)
        assert self._mesh is not None
        if self.rank == min(self._mesh.peers):
            numbers[self.stage] = tally.squares[self.stage]
            numbers[pp + self.stage] = tally.overflows[self.stage]
            if tally.losses:
                numbers[_FLAGS * pp :] = torch.tensor(tally.losses, dtype=torch.float64)
        return numbers

    def _unpack(self, numbers: Tensor) -> Tally:
        pp, values = self.needs.pp, numbers.tolist()
        return Tally(
            squares=dict(enumerate(values[:pp])),
            overflows={stage: flag != 0 for stage, flag in enumerate(values[pp : 2 * pp])},
            losses=values[_FLAGS * pp :],
        )
