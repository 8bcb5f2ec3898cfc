"""A launcher's part in a job that survives the death of its workers; one for each attempt.

Node 0's has the hub, and tells what is decided there. What the hub says is taken in by ``look``, in the
launcher's own thread, so that a slow disk never keeps the workers waiting.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from pathlib import Path
from queue import Empty, SimpleQueue

from torch.distributed.elastic.agent.server.api import WorkerState

from holdfast.control import Controller, worker_of
from holdfast.guard.board import Board
from holdfast.guard.eventlog import EventLog
from holdfast.guard.foresight import Foresight
from holdfast.guard.hub import Callbacks, Hub
from holdfast.guard.say import Say
from holdfast.job.messages import HUB_ENV, TOKEN_ENV
from holdfast.job.wishes import Granted, read_wish, write_granted
from holdfast.membership import Left, Regroup
from holdfast.values import Death, JobStopped, Regrouped

_VERDICT_S = 2.0
"""How long a node without workers waits to hear that the job as a whole has failed."""
_LEAVING_EVERY_S = 1.0


class Survival:
    """What this node knows of who is left."""

    def __init__(
        self, say: Say, log: EventLog, board: Board | None, *, is_host: bool, migrates: bool = True
    ) -> None:
        """Open the hub where this node hosts it; ``migrates``: workers may change places where it pays."""
        self._say = say
        self._log = log
        self._board = board
        """None where there is one node only."""
        self._heard: SimpleQueue[Regrouped | JobStopped | Left] = SimpleQueue()
        self._shape: tuple[int, int] | None = None
        """dp and pp, once known."""
        self._places: dict[int, int] = {}
        """What each rank holds, or held last."""
        self._dead: set[int] = set()
        self._done: set[int] = set()
        self._is_stopped = False
        self._is_quiet = False
        self._alone_s: float | None = None
        self._rings: Path | None = None
        """Where the guard leaves its wishes."""
        self._wish = 0
        self._asked_s = 0.0
        self._token = secrets.token_hex()
        self._foresight = Foresight()
        self._hub = self._open() if is_host else None
        if self._hub is not None and migrates:
            self._foresight.on_advice = self._hub.advise

    def follow_wishes(self, rings: Path) -> None:
        """From now on do what the guard wants, as far as it is new."""
        self._rings = rings
        old = read_wish(rings)
        self._wish = old.number if old is not None else 0

    def word(self, address: str) -> str:
        """Return what workers must know to find the hub, empty where there is none."""
        return f"{address}:{self._hub.port} {self._token}" if self._hub is not None else ""

    def look(self) -> None:
        """Take in what the hub has said, log it and tell it; pass on what the guard wants."""
        self._look_for_wish()
        with contextlib.suppress(Empty):
            while True:
                self._take(self._heard.get_nowait())

    def _look_for_wish(self) -> None:
        if self._rings is None or self._hub is None:
            return
        wish = read_wish(self._rings)
        if wish is None or wish.number <= self._wish:
            return
        self._wish = wish.number
        if not wish.without:
            self._hub.arrange(wish)
        elif self._board is not None:
            with contextlib.suppress(Exception):  # Nobody hears of it, and nothing is done.
                self._board.post_leaving(wish.without)

    def say_host(self, node: int) -> None:
        """Let the others know that it is this node which keeps the store of the rendezvous."""
        with contextlib.suppress(Exception):
            if self._board is not None:
                self._board.post_host(node)

    def host(self) -> int | None:
        """Return the node that keeps the store of the rendezvous, as far as it is known."""
        with contextlib.suppress(Exception):
            return self._board.host() if self._board is not None else None
        return None

    def leaving(self, *, at_once: bool = False) -> list[int]:
        """Return the workers whose nodes are to leave the job; asked for once a second, or at once."""
        now_s = time.monotonic()
        if self._board is None or (now_s < self._asked_s + _LEAVING_EVERY_S and not at_once):
            return []
        self._asked_s = now_s
        try:
            return self._board.leaving()
        except Exception:  # The store may be gone; then there are other worries.
            return []

    def mourn(self, death: Death) -> None:
        """Tell that a worker of this node died and that the others go on."""
        self._dead.add(death.rank)
        if self._hub is not None:
            self._hub.lost(death.rank)
        if not self._is_stopped:
            cause = (death.error or "").partition("\n")[0] or death.signal or f"exit code {death.exit_code}"
            self._say.line(f"{self._name(death.rank)} died: {cause}; the others go on")

    def outlook(self) -> WorkerState:
        """Say how the attempt stands when all workers of this node have died."""
        if self._hub is not None:
            return self._outlook_here(self._hub)
        return self._outlook_elsewhere(self._board) if self._board is not None else WorkerState.FAILED

    def post_failure(self) -> None:
        """Let the other nodes know that the attempt has failed."""
        if self._board is not None and self._hub is not None:
            with contextlib.suppress(Exception):  # The store may be gone; then they see that themselves.
                self._board.post_failure()

    def part(self, ranks: list[int], *, world_size: int, timeout_s: float) -> None:
        """Return when nobody needs this node's store and hub any more: every worker has ended or died."""
        deadline_s = time.monotonic() + timeout_s
        with contextlib.suppress(Exception):  # Without the store there is nobody to wait for.
            if self._board is not None:
                self._board.post_end(ranks)
            while self._board is not None and self._hub is not None and time.monotonic() < deadline_s:
                self.look()
                if len(self._board.ended() | self._dead) >= world_size:
                    return
                time.sleep(0.05)

    def hush(self) -> None:
        """Tell what is known so far, and nothing of what follows: the workers are about to be stopped."""
        self.look()
        self._is_quiet = True

    def close(self) -> None:
        """Close the hub."""
        if self._hub is not None:
            self._hub.close()
        self._foresight.close()

    def _open(self) -> Hub | None:
        callbacks = Callbacks(
            on_regroup=self._on_regroup,
            on_left=lambda rank, is_done: self._heard.put(Left(rank=rank, is_done=is_done)),
            on_stop=lambda reason: self._heard.put(JobStopped(reason=reason)),
        )
        try:
            return Hub(self._token, callbacks, is_local=self._board is None, plan=self._foresight.plan)
        except OSError as error:
            self._say.once("hub", f"cannot open the hub: {error.strerror}; no death will be survived")
            return None

    def _on_regroup(self, regroup: Regroup, controller: Controller) -> None:
        needs = controller.needs[regroup.holders[0]]
        self._shape = (needs.dp, needs.pp)
        if self._rings is not None:
            granted = Granted(
                generation=regroup.generation,
                wish=regroup.wish,
                version=regroup.agreement.version,
                places={rank: regroup.place_of(rank) for rank in regroup.holders},
                dp=needs.dp,
                pp=needs.pp,
                microbatches=needs.microbatches,
                is_shared_by_stage=True,
            )
            write_granted(self._rings, granted)
        self._heard.put(
            Regrouped(
                generation=regroup.generation,
                members=sorted(regroup.holders),
                version=regroup.agreement.version,
                places=[regroup.place_of(rank) for rank in sorted(regroup.holders)],
                pp=needs.pp,
                microbatches=needs.microbatches,
                dead=list(controller.dead),
                was_ready=self._foresight.was_ready,
                newcomers=[r for r in regroup.holders if regroup.place_of(r) in regroup.newcomers],
            )
        )

    def _take(self, heard: Regrouped | JobStopped | Left) -> None:
        if isinstance(heard, Left):
            (self._done if heard.is_done else self._dead).add(heard.rank)
            return
        if self._is_quiet:
            return
        self._log.append(heard)
        if isinstance(heard, Regrouped):
            self._places |= dict(zip(heard.members, heard.places, strict=True))
        if isinstance(heard, JobStopped):
            self._is_stopped = True
            self.post_failure()
            self._say.line(f"training cannot go on: {heard.reason}")
        elif heard.generation > 0 and self._shape is not None:
            dp, pp = self._shape
            back = (
                f"{', '.join(self._name(rank) for rank in heard.newcomers)} back: " if heard.newcomers else ""
            )
            count = f"{len(heard.members)} of {dp * pp}"
            self._say.line(f"{back}{count} workers go on from step {heard.version}")
        if isinstance(heard, Regrouped):
            self._dead -= set(heard.members)

    def _name(self, rank: int) -> str:
        if self._shape is None or rank not in self._places:
            return f"rank {rank}"
        return f"worker {worker_of(self._places[rank], self._shape[1])} (rank {rank})"

    def _outlook_here(self, hub: Hub) -> WorkerState:
        is_empty = not hub.members()
        self.look()
        if self._is_stopped:
            return WorkerState.FAILED
        if not is_empty:  # They need the store and the hub, which are here.
            return WorkerState.HEALTHY
        return WorkerState.SUCCEEDED if self._done else WorkerState.FAILED

    def _outlook_elsewhere(self, board: Board) -> WorkerState:
        self._alone_s = self._alone_s or time.monotonic()
        try:
            if board.is_failed():
                return WorkerState.FAILED
        except Exception:  # Node 0 is gone, and with it the job.
            return WorkerState.FAILED
        has_waited = time.monotonic() > self._alone_s + _VERDICT_S
        return WorkerState.SUCCEEDED if has_waited else WorkerState.HEALTHY


def hub_env(word: str) -> dict[str, str]:
    """Return the variables of a worker from what node 0 said about its hub."""
    address, _, token = word.partition(" ")
    return {HUB_ENV: address, TOKEN_ENV: token} if address else {}
