"""How a worker of a pipeline gets to its first step: with all the others, or as a newcomer among them."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import InputError
from holdfast.job import build, checkpoint, probe, selfcheck
from holdfast.job.donors import copied
from holdfast.job.engine import Engine
from holdfast.job.entering import Entering
from holdfast.job.flow import Flow
from holdfast.job.joint import Outcome
from holdfast.job.member import HubMember
from holdfast.job.options import PipelineSettings
from holdfast.job.probe import Loader, Probed
from holdfast.job.randomness import own_randomness
from holdfast.job.reached import Progress, read_reached
from holdfast.job.role import Role
from holdfast.job.saver import step_folder, whole_steps
from holdfast.job.stage import Stage, Tensors
from holdfast.job.status import Phase


class Opening:
    """Finds out what a stage is like, and lets those know who have to."""

    def __init__(self, load: Loader, engine: Engine, settings: PipelineSettings) -> None:
        self.activation_bytes = 0
        self.sample: tuple[Tensors, Any] = ((), None)
        """An input of the stage and, for the last one, targets."""
        self.is_exact = False
        self._load = load
        self._engine = engine
        self._settings = settings
        self._incoming = b"[]"
        self._announcements: list[tuple[str, str, bytes]] = []
        self._refused: set[str] = set()
        engine.content = self._content

    @property
    def _stage(self) -> Stage:
        return self._engine.role.stage

    def begin(self) -> None:
        """Open together with all the others."""
        engine = self._engine
        engine.regroup()
        while not engine.attempt(self._probe_together):
            pass
        if self._settings.memory_bytes is not None:
            engine.regroup(cap=self.cap())

    def resume(self, folder: Path) -> int:
        """Go on from the newest checkpoint that all can read, and return its step; 0: there is none."""
        before = read_reached(folder)
        step, at_s = self._resume(folder)
        if self._engine.is_leader and before is not None:
            sys.stderr.write(f"holdfast: {say_lost(before, step, at_s)}\n")
        return step

    def _resume(self, folder: Path) -> tuple[int, float]:
        """Return the step of the checkpoint that all go on from, and when it was made."""
        taken = 0, 0.0

        def work() -> Outcome:
            nonlocal taken
            taken, outcome = self._find(folder)
            return outcome

        self._engine.act(work)
        return taken

    def _find(self, folder: Path) -> tuple[tuple[int, float], Outcome]:
        """Return the newest checkpoint that all can read: its step, when it was made, how to go there."""
        engine, number = self._engine, self._stage.number
        for step in self._agreed_steps(folder):
            where = step_folder(folder, step)
            read, why = _read(where, number, stages=engine.needs.pp, is_exact=self.is_exact)
            if all(engine.gather(read is not None)):
                assert read is not None
                source, content = str(checkpoint.stage_file(where, number)), read.content
                take = partial(load_state, engine.role, content, step, source=source)
                return (step, read.at_s), Outcome(step, take)
            if why and why not in self._refused:
                self._refused.add(why)
                sys.stderr.write(f"holdfast: {why}; the checkpoint before it is used\n")
        return (0, 0.0), Outcome(0, lambda: None)

    def _agreed_steps(self, folder: Path) -> list[int]:
        """Return the steps of all whole checkpoints as one worker sees them: others may see them later."""
        engine = self._engine
        store = engine.store("checkpoints")
        if engine.place == engine.members[0]:
            store.set("0", msgspec.json.encode(whole_steps(folder)))
        return msgspec.json.decode(store.get("0"), type=list[int])

    def enter(self, member: HubMember, token: str) -> int:
        """Come to a job that is under way, and return the step that it is at."""
        engine = self._engine
        entering = Entering(engine.rank, member, engine.state, token=token)
        entering.take_over, entering.cap = self.take_over, self.cap
        engine.points.enter(Phase.OUTSIDE)  # Nobody waits for it yet.
        regroup = entering.enter()
        engine.points.enter(Phase.REGROUP)
        if not engine.follow(regroup):
            engine.recover()
        entry = entering.entry
        sys.stderr.write(
            f"holdfast: rank {engine.rank} took over {entry.size_bytes / 1e6:.1f} MB and {entry.updates} "
            f"updates in {entry.seconds:.1f} s, and goes on with the others from step "
            f"{regroup.agreement.version}\n"
        )
        return regroup.agreement.version

    def announce(self) -> None:
        """Tell those who are still opening what they need to know."""
        for name, key, value in self._announcements:
            self._engine.store(name).set(key, value)

    def self_check(self, repeats: int) -> None:
        """Raise if the stage gives different bits when a micro-batch is repeated."""
        selfcheck.check_stage(self._stage, *self.sample, repeats=repeats)

    def cap(self) -> int | None:
        """Return how many micro-batches fit beside the state; None: there is no limit."""
        memory_bytes = self._settings.memory_bytes
        if memory_bytes is None:
            return None
        size = sum(each.numel() * each.element_size() for each in self._stage.parameters)
        copies = 2 + 2  # Parameters, the reduced gradient; two values of the optimizer, as Adam has.
        copies += 3 if self._settings.is_staggered else 0
        copies += 3 if self.is_exact else 1
        cap = (memory_bytes - copies * size) // max(self.activation_bytes, 1)
        if cap < 1:
            raise InputError(
                f"memory_bytes is {memory_bytes}, but stage {self._stage.number} needs {copies * size} for "
                f"its state and {self.activation_bytes} for a micro-batch"
            )
        return cap

    # --- with all the others ------------------------------------------------------------------

    def _probe_together(self) -> None:
        self._probe(self._engine.store("forms"), step=0)
        self._check_alike()

    def _probe(self, store: Any, *, step: int) -> Probed:
        engine = self._engine
        engine.points.enter(Phase.EVALUATE)
        with own_randomness(self._stage.device):
            probed = probe.probe(
                self._stage, self._load, store, step=step, pipeline=engine.place // engine.needs.pp
            )
        self.activation_bytes, self.sample = probed.activation_bytes, probed.sample
        self._incoming = probe.encode(probed.forms.incoming)
        self._announcements = [("forms", str(self._stage.number), probe.encode(probed.forms.outgoing))]
        if self.is_exact:
            self.self_check(2)
        engine.use(Flow(self._stage, probed.forms, engine.points, seed=self._settings.seed))
        return probed

    def _check_alike(self) -> None:
        """Refuse peers that start from different parameters."""
        digest, number = build.digest_of(self._stage.module), self._stage.number
        engine = self._engine
        peers = [place for place in engine.members if place % engine.needs.pp == number]
        store = engine.store(f"digest{number}")
        self._announcements.append((f"digest{number}", "0", digest.encode()))
        if engine.place == peers[0]:
            store.set("0", digest.encode())
        elif store.get("0").decode() != digest:
            raise InputError(
                f"stage {number}: rank {engine.place} starts from other parameters than rank "
                f"{peers[0]}: its builder must not depend on the rank or on an unseeded generator"
            )

    # --- as a newcomer ------------------------------------------------------------------------

    def _content(self) -> dict[str, Any]:
        """Return all that another worker needs to go on in the place of this one."""
        return {
            "module": copied(dict(self._stage.module.state_dict())),
            "state": copied(self._engine.state.save()),
            "incoming": self._incoming,
        }

    def take_over(self, content: dict[str, Any], version: int) -> None:
        """Hold what somebody else of the stage held at a version."""
        load_state(self._engine.role, content, version, source="a donor's state")
        self._probe(_Told(content["incoming"], self._stage.number), step=version)
        self._engine.points.enter(Phase.OUTSIDE)


def say_lost(before: Progress, step: int, at_s: float) -> str:
    """Say what is lost of a run that came to its end, by going on from a step of it."""
    lost = max(0, before.step - step)
    words = f"goes on from step {step}: {lost} step{'' if lost == 1 else 's'} of the last run"
    if lost and at_s:
        words += f", {max(0.0, before.at_s - at_s):.1f} s of training,"
    return f"{words} {'is' if lost == 1 else 'are'} lost"


class _Read(NamedTuple):
    content: dict[str, Any]
    at_s: float


def _read(where: Path, stage: int, *, stages: int, is_exact: bool) -> tuple[_Read | None, str]:
    """Return a stage of a checkpoint, or None and why it is none."""
    try:
        description = checkpoint.read_description(where)
        if (description.stages, description.exact) != (stages, is_exact):
            raise InputError(
                f"{where} holds {description.stages} stages with exact={description.exact}, "
                f"expected {stages} with exact={is_exact}"
            )
        return _Read(checkpoint.read_stage(where, stage), description.at_s), ""
    except InputError as error:
        return None, str(error)


class _Told:
    """What a newcomer knows already of what others would announce."""

    def __init__(self, incoming: bytes, stage: int) -> None:
        self._values = {str(stage - 1): incoming}

    def get(self, key: str) -> bytes:
        return self._values[key]

    def set(self, key: str, value: bytes) -> None:
        self._values[key] = value


def load_state(role: Role, content: dict[str, Any], version: int, *, source: str) -> None:
    """Make a stage and its state what a checkpoint or a donor holds; ``InputError`` if it does not fit."""
    try:
        role.stage.module.load_state_dict(content["module"])
        role.state.load(content["state"], version)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        # torch names what is missing or of another size, over many lines.
        words = " ".join(str(error).split())
        raise InputError(
            f"{source} does not fit stage {role.stage.number}: {type(error).__name__}: {words}"
        ) from error
