"""One worker of a pipeline job: who is with it, and what happens when a peer is lost.

``attempt`` runs a piece of work; when a peer is lost it leaves the generation, agrees with the other
survivors on where to go on, and returns False. No checkpoint is read and no process restarts. Every piece of
work can therefore be repeated, and all state that outlives an attempt is in ``State``.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from holdfast.commit import Tally
from holdfast.job.donors import Donors
from holdfast.job.flow import Flow
from holdfast.job.joint import Joint, Outcome
from holdfast.job.member import Member
from holdfast.job.mesh import Mesh, PeerLostError
from holdfast.job.points import Points
from holdfast.job.role import Role
from holdfast.job.routes import Instruction, instructions
from holdfast.job.saver import Saver
from holdfast.job.state import State
from holdfast.job.status import Phase
from holdfast.membership import Needs, Regroup, Reported
from holdfast.plan.ops import Schedule, parse_schedule

_UNTIL_MEETING = 2
"""Steps from the one in whose tally an invitation was passed on to the one before which all meet: by then
everybody has seen that tally, also who looks at it late."""


class Engine:
    """Keeps one worker together with the others, generation after generation."""

    def __init__(self, rank: int, needs: Needs, member: Member, points: Points, device: torch.device) -> None:
        self.rank = rank
        """Under which number the launcher started this worker."""
        self.place = rank
        """Pipeline and stage that it holds, as a number."""
        self.needs = needs
        self.points = points
        self.device = device
        self.generation = -1
        self.members: list[int] = []
        self.schedule: Schedule | None = None
        self.is_staggered = True
        self.recoveries: list[float] = []
        """Seconds from each failure's being seen until this worker could go on."""
        self.meetings: list[float] = []
        """Seconds that each meeting between two steps took, for which nobody had died."""
        self.donors = Donors()
        self.joint = Joint()
        self.saver: Saver | None = None
        self.content: Callable[[], dict[str, Any]] = dict
        """Returns what a checkpoint or a newcomer needs of this stage, with tensors that nobody writes to."""
        self.on_tally: Callable[[int, Tally], None] = lambda step, tally: None
        """Called with the complete tally of every step whose update has been applied."""
        self.on_regroup: Callable[[Regroup], None] = lambda regroup: None
        self.on_move: Callable[[Regroup], None] = lambda regroup: None
        """Called to have this worker hold what a generation wants it to; may raise ``PeerLostError``."""
        self.on_leave: Callable[[], None] = lambda: None
        """Called when nothing that is under way will be answered any more."""
        self.on_final: Callable[[int], None] = lambda version: None
        """Called with every version that is final, between two steps."""
        self.on_void: Callable[[], None] = lambda: None
        """Called from another thread when whatever this worker waits for may never come."""
        self._member = member
        member.on_void = self._hear_void
        member.on_feed = self.donors.ask
        member.on_invite = self._hear_invite
        self._invited_generation = -1
        self._meeting_step: int | None = None
        self._void_generation = -1
        self._lost = ""
        self._mesh: Mesh | None = None
        self.order: list[Instruction] = []
        """What this worker does in a step."""
        self._role: Role | None = None

    @property
    def survives(self) -> bool:
        """Whether the others go on when a worker dies."""
        return self._member.survives

    @property
    def stage(self) -> int:
        """The stage that this worker holds."""
        return self.place % self.needs.pp

    @property
    def is_leader(self) -> bool:
        """Whether this worker has the first of all places that are held."""
        return self.place == self.members[0]

    @property
    def mesh(self) -> Mesh:
        """The connections of the generation."""
        assert self._mesh is not None
        return self._mesh

    @property
    def role(self) -> Role:
        """What this worker holds."""
        assert self._role is not None
        return self._role

    @role.setter
    def role(self, role: Role) -> None:
        self._role = role
        if role.flow is not None:
            role.flow.mesh = self._mesh

    @property
    def state(self) -> State:
        """How far this worker is."""
        return self.role.state

    # --- generations --------------------------------------------------------------------------

    def attempt(self, work: Callable[[], None]) -> bool:
        """Do a piece of work, and return whether it was done; if not, the next generation stands ready."""
        if self._is_done(work):
            return True
        # Here, not in an except clause: a traceback would hold the groups, and their sockets open.
        self.recover()
        return False

    def regroup(
        self,
        *,
        speeds: dict[str, float] | None = None,
        cap: int | None = None,
        swap: tuple[str, str] | None = None,
    ) -> None:
        """Begin a generation because all want one, at the same point of their scripts."""
        self.recover(is_wanted=True, speeds=speeds, cap=cap, swap=swap)

    def recover(
        self,
        *,
        is_wanted: bool = False,
        speeds: dict[str, float] | None = None,
        cap: int | None = None,
        swap: tuple[str, str] | None = None,
    ) -> None:
        """Leave the generation, agree on where to go on, and connect the next; again, until that works."""
        started_s, is_calm = time.monotonic(), is_wanted
        self._leave()
        wishes = {"speeds": speeds, "cap": cap, "swap": swap}
        while not self._regrouped(is_wanted, wishes):
            is_wanted = is_calm = False
            self._leave()
        if self.generation > 0:
            took_s = time.monotonic() - started_s
            (self.meetings if is_calm else self.recoveries).append(took_s)

    def use(self, flow: Flow) -> None:
        """Take the flow that goes with what the stages turned out to be."""
        self.role.flow = flow
        flow.mesh = self._mesh

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
        if self.role.flow is not None:
            self.role.flow.drop()
        self.on_leave()
        if self.saver is not None:
            self.saver.forget()
        if self._mesh is not None:
            self._mesh.close()
            self._mesh = None
        # What refers to itself would keep its group; after a freeze this takes no time.
        gc.collect()
        self.role.sums.clear()

    def _regrouped(self, is_wanted: bool, wishes: dict[str, Any]) -> bool:
        outcome = self.joint.outcome
        report = Reported(
            rank=self.rank,
            generation=self.generation,
            standing=msgspec.structs.replace(
                self.state.standing,
                acts=self.joint.count,
                outcome=None if outcome is None else outcome.version,
            ),
            place=self.place,
            lost="" if is_wanted else self._lost,
            **wishes,
        )
        return self.follow(self._member.regroup(report, is_wanted=is_wanted))

    def follow(self, regroup: Regroup) -> bool:
        """Go on as the controller says, and return whether that worked."""
        self.joint.adopt(regroup.agreement)
        self.state.adopt(regroup.agreement)
        if regroup.agreement.tally is not None:
            self.tell(regroup.agreement.version - 1, regroup.agreement.tally)
        self.generation = self.points.generation = regroup.generation
        self.members = regroup.members
        self._meeting_step = None
        entered = [rank for rank in regroup.holders if regroup.place_of(rank) in regroup.newcomers]
        self.donors.part(entered, regroup.agreement.version)
        return self._is_done(lambda: self._enter(regroup))

    def _enter(self, regroup: Regroup) -> None:
        if self.is_void:
            raise PeerLostError("a member left before all were connected")
        self.on_move(regroup)
        self.place = regroup.place_of(self.rank)
        self.points.hold(self.place)
        self.schedule = parse_schedule(regroup.schedule)
        self.order = instructions(self.schedule, self.place)
        self.points.order_length = len(self.order)
        self.on_regroup(regroup)
        self._connect()

    @property
    def is_void(self) -> bool:
        """Whether a member of the generation is known to have left it."""
        return self._void_generation >= self.generation

    def _connect(self) -> None:
        peers = [place for place in self.members if place % self.needs.pp == self.stage]
        self._mesh = Mesh(rank=self.place, members=self.members, peers=peers)
        if self.is_void:  # Heard before there was anything to wake.
            raise PeerLostError("a member left before all were connected")
        self._mesh.connect(self.store)
        if self.role.flow is not None:
            self.role.flow.mesh = self._mesh

    def _hear_void(self, generation: int) -> None:
        """Wake this worker, in whatever it waits for; called from the thread that listens."""
        self._void_generation = max(self._void_generation, generation)
        mesh = self._mesh
        if generation >= self.generation:
            self.on_void()
            if mesh is not None:
                mesh.wake()

    def _hear_invite(self, generation: int) -> None:
        """Note that the members of a generation are to meet; called from the thread that listens."""
        self._invited_generation = max(self._invited_generation, generation)

    def is_meeting(self, step: int) -> bool:
        """Say whether all members meet before this step; all of them say the same."""
        return self._meeting_step is not None and step >= self._meeting_step

    @property
    def is_invited(self) -> bool:
        """Whether this worker has heard that the members of this generation are to meet."""
        return self._invited_generation == self.generation

    def note_invitation(self, step: int) -> None:
        """Note that the tally of a step told everybody of a meeting."""
        if self._meeting_step is None:
            self._meeting_step = step + _UNTIL_MEETING

    def store(self, name: str) -> Any:
        """Return a store that all members of the generation see."""
        return self._member.store(self.generation, name)

    def tell(self, step: int, tally: Tally) -> None:
        """Hand on what came of a step, once every stage has spoken."""
        if tally.is_complete(self.needs.pp):
            self.on_tally(step, tally)

    # --- what all do together ---------------------------------------------------------------------

    def meet(self) -> None:
        """Wait until every member of the generation is here."""
        self.mesh.finish_sum(self.mesh.start_sum(torch.zeros(1)))

    def act(self, work: Callable[[], Outcome]) -> None:
        """Do something with all the others that is done for all or for none; again, should one die first."""
        before = self.joint.count

        def act_once() -> None:
            self.joint.outcome = work()
            self.meet()
            self.joint.take()

        while self.joint.count == before:
            self.attempt(act_once)

    def gather(self, number: int) -> list[int]:
        """Return what every member of the generation gave, in their order."""
        numbers = torch.zeros(len(self.members), dtype=torch.int64)
        numbers[self.members.index(self.place)] = number
        self.mesh.finish_sum(self.mesh.start_sum(numbers))
        found: list[int] = numbers.tolist()
        return found
