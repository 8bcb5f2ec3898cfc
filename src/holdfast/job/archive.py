"""Checkpoints that a script asks for: written and taken over by all workers together."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from holdfast.errors import InputError
from holdfast.job import checkpoint
from holdfast.job.engine import Engine
from holdfast.job.joint import Outcome
from holdfast.job.opening import load_state
from holdfast.job.status import Phase


class Archive:
    """Saves and loads what an engine's workers hold."""

    def __init__(self, engine: Engine, *, is_exact: bool) -> None:
        self._engine = engine
        self._is_exact = is_exact

    def describe(self, step: int) -> checkpoint.Description:
        """Return what a checkpoint of this job says of itself."""
        return checkpoint.Description(step=step, stages=self._engine.needs.pp, exact=self._is_exact)

    def save(self, folder: Path, step: int) -> str | None:
        """Write a checkpoint, and return why there is none; None: there is one."""
        failures: list[str | None] = []

        def work() -> Outcome:
            failure = self._save_once(folder, step)
            return Outcome(step, lambda: failures.append(failure))

        self._engine.act(work)
        return failures[0]

    def load(self, folder: Path) -> int:
        """Go to a checkpoint, and return its step."""
        description = checkpoint.read_description(folder)
        wanted = self.describe(description.step)
        if (description.stages, description.exact) != (wanted.stages, wanted.exact):
            raise InputError(
                f"{folder} holds {description.stages} stages with exact={description.exact}, "
                f"expected {wanted.stages} with exact={wanted.exact}"
            )
        role, number = self._engine.role, self._engine.stage
        source = str(checkpoint.stage_file(folder, number))
        content = checkpoint.read_stage(folder, number)
        take = partial(load_state, role, content, description.step, source=source)

        def work() -> Outcome:
            found = self._engine.gather(description.step)
            if set(found) != {description.step}:
                raise InputError(
                    f"{folder} is of step {description.step} here, but the ranks found steps {found}"
                )
            return Outcome(description.step, take)

        self._engine.act(work)
        return description.step

    def _save_once(self, folder: Path, step: int) -> str | None:
        engine, number = self._engine, self._engine.stage
        engine.points.enter(Phase.SAVE)
        content = {"module": engine.role.stage.module.state_dict(), "state": engine.state.save()}
        for writer, write in (
            (min(engine.mesh.peers), partial(checkpoint.write_stage, folder, number, content)),
            (engine.members[0], partial(checkpoint.finish, folder, self.describe(step))),
        ):
            mine = checkpoint.failure_of(write) if engine.place == writer else None
            # All learn of it: a rank that raised alone would look dead, and a peer would try in its place.
            failed = engine.gather(mine is not None)
            if any(failed):
                return mine or f"rank {engine.members[failed.index(1)]} could not write its part"
        return None
