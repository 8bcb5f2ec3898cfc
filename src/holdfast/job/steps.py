"""The steps of one worker: compute, reduce, hear what all stages found, commit."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.commit import Tally
from holdfast.job.engine import Engine
from holdfast.job.flow import Load, Losses
from holdfast.job.mesh import Work
from holdfast.job.randomness import own_randomness
from holdfast.job.routes import forward_only, instructions
from holdfast.job.state import State
from holdfast.job.status import Phase

_FLAGS = 2
"""Numbers that every stage adds to a tally: sum of squares, overflow."""
_NEWS = 2
"""Numbers at the end of a tally: the version of the next checkpoint, whether there is an invitation."""


class Steps:
    """Trains the stage that an engine holds; every call may raise ``PeerLostError`` and be repeated."""

    def __init__(self, engine: Engine, load: Load) -> None:
        self._engine = engine
        self._load = load
        self._retry: list[int] | None = None
        self._ahead: tuple[Work | None, Tensor] | None = None
        engine.on_leave = self._forget

    @property
    def is_open(self) -> bool:
        """Whether the verdict on the last step is still to come."""
        return self._ahead is not None

    def advance(self) -> None:
        """Compute a step and commit it; or find that the one before has to be corrected first."""
        engine = self._engine
        state, step, sums, flow = engine.state, engine.state.position, engine.role.sums, engine.role.flow
        assert flow is not None
        engine.points.step = step
        sums.exponents = self._retry or state.exponents
        with own_randomness(engine.device):
            losses = flow.train(engine.order, self._load, sums)
        if self.settle():
            # Nothing of what this worker holds can be taken back now.
            engine.on_final(state.version)
            if engine.saver is not None:
                engine.saver.note_step(state.version, is_leader=engine.is_leader)
            engine.donors.begin(state, engine.content)
            self._save(state)
            self._commit(step, losses)
        else:
            sums.clear()  # Computed with parameters that have been corrected since.

    def settle(self) -> bool:
        """Wait for the verdict on the last step, if it is open; return whether what followed stands."""
        if self._ahead is None:
            return True
        engine, state = self._engine, self._engine.state
        work, numbers = self._ahead
        engine.points.after_ops(Phase.SETTLE)
        engine.mesh.finish_sum(work)
        self._ahead = None
        step, tally = state.position - 1, self._unpack(numbers, state.position - 1)
        state.note(step, tally)
        verdict = state.judge(tally)
        self._retry = state.retry_exponents() if verdict.is_void else None
        stood = state.confirm(verdict)
        if not verdict.is_void:
            engine.tell(step, tally)
        return stood

    def evaluate(self, load: Load, microbatches: int, step: int) -> list[float]:
        """Return the losses of a pass without updates, pipeline by pipeline."""
        engine, needs = self._engine, self._engine.needs
        assert engine.role.flow is not None
        schedule = forward_only(engine.members, dp=needs.dp, pp=needs.pp, microbatches=microbatches)
        engine.points.step = step
        with own_randomness(engine.device), engine.points.keeping(Phase.EVALUATE):
            losses = engine.role.flow.evaluate(instructions(schedule, engine.place), load)
            numbers = self._loss_vector(losses, microbatches)
            engine.mesh.finish_sum(engine.mesh.start_sum(numbers))
        found: list[float] = numbers.tolist()
        return found

    def _forget(self) -> None:
        self._ahead = self._retry = None

    def _save(self, state: State) -> None:
        engine, saver = self._engine, self._engine.saver
        if saver is not None and saver.is_due(state.version):
            is_writer = engine.place == min(engine.mesh.peers)
            saver.begin(state.version, engine.stage, engine.content if is_writer else None)

    def _commit(self, step: int, losses: Losses) -> None:
        engine, state = self._engine, self._engine.state
        engine.points.after_ops(Phase.REDUCE)
        engine.points.reach("reduction")
        shared = self._share_losses(losses)
        reduced = engine.role.sums.reduce(engine.mesh)
        self._retry = None
        own = Tally(
            squares={engine.stage: reduced.square()},
            overflows={engine.stage: reduced.overflowed},
            losses=shared,
        )
        state.prepare(reduced, own)
        engine.points.reach("barrier")
        numbers = self._pack(own)
        work = engine.mesh.start_sum(numbers)
        engine.points.reach("step")
        if engine.is_staggered and state.may_go_ahead:
            state.go_ahead(state.judge(own))
            self._ahead = (work, numbers)
        else:
            self._conclude(step, work, numbers)

    def _conclude(self, step: int, work: Work | None, numbers: Tensor) -> None:
        """Wait for the verdict of all, and do what it says."""
        engine, state = self._engine, self._engine.state
        engine.points.after_ops(Phase.SETTLE)
        engine.mesh.finish_sum(work)
        tally = self._unpack(numbers, step)
        state.note(step, tally)
        verdict = state.judge(tally)
        self._retry = state.retry_exponents() if verdict.is_void else None
        state.apply(verdict)
        if not verdict.is_void:
            engine.tell(step, tally)

    # --- tallies ------------------------------------------------------------------------------

    def _share_losses(self, losses: Losses) -> list[float]:
        """Let every worker of the last stage know all losses: any of them may have to tell them later."""
        engine = self._engine
        if engine.stage != engine.needs.pp - 1:
            return []
        numbers = self._loss_vector(losses, engine.needs.microbatches)
        engine.mesh.sum_stage(numbers)
        found: list[float] = numbers.tolist()
        return found

    def _loss_vector(self, losses: Losses, microbatches: int) -> Tensor:
        """Return a place for every loss; those of others are zero, and adding zero changes nothing."""
        numbers = torch.zeros(self._engine.needs.dp * microbatches, dtype=torch.float64)
        for (pipeline, microbatch), loss in losses.items():
            numbers[pipeline * microbatches + microbatch] = loss
        return numbers

    def _pack(self, tally: Tally) -> Tensor:
        """Return what this worker adds to the tally of all: one worker speaks for each stage."""
        engine, saver, stage = self._engine, self._engine.saver, self._engine.stage
        pp, losses = engine.needs.pp, engine.needs.dp * engine.needs.microbatches
        numbers = torch.zeros(_FLAGS * pp + losses + pp + _NEWS, dtype=torch.float64)
        numbers[-1] = engine.is_invited
        if engine.is_leader and saver is not None:
            numbers[-2] = saver.due(engine.state.version)
        if engine.place == min(engine.mesh.peers):
            numbers[stage] = tally.squares[stage]
            numbers[pp + stage] = tally.overflows[stage]
            numbers[stage - pp - _NEWS] = saver.written if saver is not None else 0
            if tally.losses:
                numbers[_FLAGS * pp : -pp - _NEWS] = torch.tensor(tally.losses, dtype=torch.float64)
        return numbers

    def _unpack(self, numbers: Tensor, step: int) -> Tally:
        engine, saver = self._engine, self._engine.saver
        pp, values = engine.needs.pp, numbers.tolist()
        if values[-1]:
            engine.note_invitation(step)
        if saver is not None:
            written = [int(each) for each in values[-pp - _NEWS : -_NEWS]]
            saver.hear(int(values[-2]), written, is_leader=engine.is_leader)
        return Tally(
            squares=dict(enumerate(values[:pp])),
            overflows={stage: flag != 0 for stage, flag in enumerate(values[pp : 2 * pp])},
            losses=values[_FLAGS * pp : -pp - _NEWS],
        )
