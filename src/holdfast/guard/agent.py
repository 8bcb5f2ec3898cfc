"""Torch's elastic agent with workers of our own: its rendezvous and restart rules, our processes.

What differs from torchrun: every restart gets an empty store, workers die with their launcher, the first
worker to die is found out across nodes, and where the workers say that they survive a death, they may.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from torch.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.utils import macros  # type: ignore[attr-defined]

from holdfast.guard.deaths import describe, first_of_nodes, first_to_die, is_over, is_victim
from holdfast.guard.home import Home
from holdfast.guard.hosting import Hosting, share_word
from holdfast.guard.joining import Invitation, disinvite, invite
from holdfast.guard.leaving import LeftOut, drain, keeps_store
from holdfast.guard.output import Pump
from holdfast.guard.plans import Attempt, Recipe, make_plans
from holdfast.guard.probing import order_precheck
from holdfast.guard.returns import Returns
from holdfast.guard.rundir import make_key
from holdfast.guard.say import Say
from holdfast.guard.sessions import end_sessions
from holdfast.guard.standby import Standby
from holdfast.guard.steady import SteadyRendezvous
from holdfast.guard.store import exchange_deaths, own_stores_only
from holdfast.guard.survival import Survival
from holdfast.guard.workers import Worker, Workers
from holdfast.job.wishes import Crew, write_crew
from holdfast.values import AttemptEnded, AttemptStarted, Death, NodeLeft, WorkerDied, WorkerReturned

_SETTLE_S = 1.0


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent works with."""

    pump: Pump
    say: Say
    propose: Callable[[], str]
    """Returns the run directory that this node would choose."""
    open_home: Callable[[int, str, str], Home]
    """Called once the nodes have met, with this node's number, and node 0's run directory and key."""


class Agent(SimpleElasticAgent):
    """Runs the workers of one node, attempt after attempt."""

    def __init__(self, spec: WorkerSpec, recipe: Recipe, ports: Ports, *, grace_s: float) -> None:
        spec.rdzv_handler = self._steady = SteadyRendezvous(spec.rdzv_handler)
        self._steady.is_steady = self._is_survivor
        super().__init__(spec)
        self.first: Death | None = None
        """Who died first in the last attempt that failed, on any node."""
        self.deaths: list[Death] = []
        """All of this node that died in it, or in the one that is going on."""
        self.home: Home | None = None
        self.stop_signal: signal.Signals | None = None
        """What the launcher was stopped by, to be passed on to the workers."""
        self._recipe = recipe
        self._ports = ports
        self._grace_s = grace_s
        self._workers: Workers | None = None
        self._hosting = Hosting(ports.say)
        self._returns = Returns()
        self._standby = Standby(recipe.boot)
        self._crew: Crew | None = None
        self._attempt = -1

    def stop(self) -> None:
        """End the workers that are left, by the signal that the launcher was stopped with."""
        self._standby.close()
        self._end_workers("signal")
        self._hosting.close()
        if self.home is not None and self.home.log.node == 0:
            disinvite(self.home.run_dir.path)

    def kill_workers(self) -> None:
        """End all workers at once; called from the thread that enforces the time limit."""
        workers = self._workers
        left = [worker for worker in workers.all if worker.exit_code is None] if workers is not None else []
        for worker in left:
            worker.signal(signal.SIGKILL)
        end_sessions([worker.pid for worker in left])

    # --- what torch's agent calls -------------------------------------------------------------

    def _rendezvous(self, worker_group: Any) -> None:
        with own_stores_only():
            super()._rendezvous(worker_group)
        self._attempt += 1
        # In every round, since another node may have joined in it.
        chosen = share_word(worker_group, str(self.home.run_dir.path) if self.home else self._ports.propose())
        key = share_word(worker_group, self.home.key if self.home else make_key(), topic="key")
        if self.home is None:
            self.home = self._ports.open_home(worker_group.group_rank, chosen, key)
        # Who dies comes back soon where it is started again: to change places would be for nothing.
        migrates = not self.home.plan.settings.rejoin
        self._hosting.renew(
            worker_group,
            self.home.log,
            attempt=self._attempt,
            migrates=migrates,
            rings=self.home.rings,
        )
        self.home.supervisor.report(self._hosting.reporting(worker_group))

    def _start_workers(self, worker_group: Any) -> dict[int, Any]:
        home = self._opened()
        home.log.attempt = self._attempt
        home.supervisor.look()
        restarts = worker_group.spec.max_restarts - self._remaining_restarts
        attempt = Attempt(
            number=self._attempt, restarts=restarts, group=worker_group, hub=self._hosting.hub_env
        )
        if home.plan.settings.precheck:
            order_precheck(home.rings, world_size=worker_group.workers[0].world_size, attempt=self._attempt)
        self.deaths = []
        self._returns = Returns()
        self._workers = Workers(make_plans(self._recipe, attempt, home), self._ports.pump, self._ports.say)
        home.log.append(
            AttemptStarted(
                world_size=worker_group.workers[0].world_size,
                nodes=worker_group.group_world_size,
                ranks=[worker.plan.rank for worker in self._workers.all],
                pids=[worker.pid for worker in self._workers.all],
            )
        )
        if worker_group.group_world_size > 1 and keeps_store(self._recipe.args.config):
            self._survival().say_host(worker_group.group_rank)
        if worker_group.group_rank == 0:
            self._crew = _crew(worker_group, self._attempt)
            write_crew(home.rings, self._crew)
        if worker_group.group_rank == 0 and self._hosting.hub_env:
            self._invite(worker_group)
        return {worker.plan.local_rank: worker.pid for worker in self._workers.all}

    def _monitor_workers(self, worker_group: Any) -> RunResult:
        assert self._workers is not None
        survival = self._survival()
        self._opened().supervisor.look()
        survival.look()
        state = self._look_at(self._workers, survival)
        if not self._is_survivor():
            self._tell_crew(survival)
            leaving = survival.leaving(at_once=state == WorkerState.FAILED)
            if leaving:
                return self._part_with(leaving)
        if state == WorkerState.FAILED:
            survival.post_failure()
            self._name_the_first(worker_group, self._workers)
            return RunResult(state=state)
        self._mourn(self._workers, survival)
        if state == WorkerState.HEALTHY:
            self._start_again(self._workers)
            self._tell_stuck(self._workers)
            return RunResult(state=state)
        self._opened().log.append(AttemptEnded(reason="succeeded"))
        return RunResult(
            state=state, return_values={worker.global_rank: None for worker in worker_group.workers}
        )

    def _exit_barrier(self) -> None:
        if not self._is_survivor():
            super()._exit_barrier()  # type: ignore[no-untyped-call]
            return
        # Torch's would wait for every node, also for one that is gone.
        workers = self._worker_group.workers
        self._survival().part(
            [worker.global_rank for worker in workers],
            world_size=workers[0].world_size,
            timeout_s=self._exit_barrier_timeout,
        )

    def _stop_workers(self, worker_group: Any) -> None:
        self._end_workers("failed" if worker_group.state == WorkerState.FAILED else "membership")

    def _restart_workers(self, worker_group: Any) -> None:
        if worker_group.state == WorkerState.FAILED:
            self._say_restart(worker_group.spec.max_restarts)
        super()._restart_workers(worker_group)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        return  # The launcher calls `stop`, which knows the signal.

    def _record_worker_events(self, result: RunResult) -> None:
        return  # Ours are in the event log, and torch's would need its own process handles.

    # --- workers ------------------------------------------------------------------------------

    def _opened(self) -> Home:
        assert self.home is not None  # By the first rendezvous, which precedes everything else.
        return self.home

    def _survival(self) -> Survival:
        assert self._hosting.survival is not None  # By every rendezvous.
        return self._hosting.survival

    def _invite(self, group: Any) -> None:
        """Leave word for workers that nobody here will start."""
        home = self._opened()
        command = [*self._recipe.boot[1:], *macros.substitute(self._recipe.args.command, "0")]
        invitation = Invitation(
            hub=self._hosting.hub_env,
            attempt=self._attempt,
            world_size=group.workers[0].world_size,
            command=command,
            folder=str(Path.cwd()),
            host=socket.gethostname(),
            rings=str(home.rings),
        )
        with contextlib.suppress(OSError):  # No run directory: nobody can join, and the job needs nobody.
            invite(home.run_dir.path, invitation)

    def _part_with(self, ranks: list[int]) -> RunResult:
        """Leave the job, if it is this node that is too slow; else restart without who is."""
        home, mine = self._opened(), [worker.global_rank for worker in self._worker_group.workers]
        if not set(mine) & set(ranks):
            self._steady.wants_round = True
            return RunResult(state=WorkerState.HEALTHY)
        self._end_workers("membership")
        told = drain(f"holdfast: rank {', '.join(map(str, mine))} too slow, run {home.run_dir.path.name}")
        home.log.append(NodeLeft(ranks=mine, scheduler=told))
        self._ports.say.line(f"this node is too slow and leaves the job, which restarts without it ({told})")
        self._steady.leave()
        raise LeftOut

    def _tell_crew(self, survival: Survival) -> None:
        """Let the guard of node 0 know how many nodes stand by, and which one has to stay."""
        crew, spares = self._crew, self._steady.spares()
        if crew is None or spares == crew.spares:
            return
        self._crew = msgspec.structs.replace(crew, spares=spares, host=survival.host())
        write_crew(self._opened().rings, self._crew)

    def _end_workers(self, reason: Literal["failed", "membership", "signal"]) -> None:
        if self._workers is None:
            return
        workers, was_running = self._workers, bool(self._workers.running())
        self._survival().hush()
        workers.stop(self.stop_signal or signal.SIGTERM, grace_s=self._grace_s)
        self._workers = None
        self._ports.pump.drain(1.0)
        if reason == "failed":
            self._keep_deaths(workers, [death for death in self._deaths(workers.failed()) if death.error])
        if was_running or reason == "failed":
            first = self.first if reason == "failed" else None
            self._opened().log.append(AttemptEnded(reason=reason, first=first))

    def _look_at(self, workers: Workers, survival: Survival) -> WorkerState:
        # In this order: one that ends in between is then taken for running, and looked at again.
        running, failed = workers.running(), workers.failed()
        if not all(worker.survives for worker in failed):
            return WorkerState.FAILED
        if running:
            return WorkerState.HEALTHY
        if len(failed) < len(workers.all):
            return WorkerState.SUCCEEDED
        return survival.outlook()

    def _is_survivor(self) -> bool:
        """Say whether a worker of this node has said that the job goes on without it."""
        return self._workers is not None and any(worker.survives for worker in self._workers.all)

    def _mourn(self, workers: Workers, survival: Survival) -> None:
        """Note those whose death the job survives, each once."""
        survived = [worker for worker in workers.failed() if worker.survives]
        lived_s = {worker.pid: worker.lived_s for worker in survived}
        for death in self._keep_deaths(workers, self._deaths(survived)):
            survival.mourn(death)
            if self._opened().plan.settings.rejoin and not is_over(death):
                self._expect(death, lived_s[death.pid])

    def _expect(self, death: Death, lived_s: float) -> None:
        """Note when a worker is to be started again."""
        wait_s = self._returns.died(death.rank, lived_s=lived_s, now_s=time.monotonic())
        if wait_s is None:
            self._ports.say.line(f"rank {death.rank} keeps dying soon after its start: it stays away")

    def _start_again(self, workers: Workers) -> None:
        if not self._opened().plan.settings.rejoin:
            return
        self._standby.look(workers.all[0].plan)
        for rank in self._returns.due(time.monotonic()):
            worker = workers.replace(rank, self._standby.take)
            self._opened().log.append(WorkerReturned(rank=rank, pid=worker.pid))
            self._ports.say.line(f"rank {rank} is started again, and will take part when it has caught up")

    def _name_the_first(self, group: Any, workers: Workers) -> None:
        """Find out who died first, here or elsewhere, and keep every traceback where it belongs."""

        def is_clear() -> bool:
            # A victim can be quicker to leave than the worker that raised: give the latter a moment.
            return not workers.running() or not all(map(is_victim, self._deaths(workers.failed())))

        workers.settle(is_clear, _SETTLE_S)
        deaths = self._deaths(workers.failed())
        self._keep_deaths(workers, deaths)
        mine = first_to_die(deaths)
        assert mine is not None
        reports = [mine]
        if group.group_world_size > 1:
            reports = list(exchange_deaths(group.store, mine, prefix=self._hosting.prefix(group)))
        self.first = first_of_nodes(reports)

    def _keep_deaths(self, workers: Workers, deaths: list[Death]) -> list[Death]:
        """Note those that are new and return them; whoever was merely told to stop has not died."""
        known = {(death.rank, death.pid) for death in self.deaths}
        new = [death for death in deaths if (death.rank, death.pid) not in known]
        for death in new:
            self._opened().log.append(WorkerDied(death=death))
        workers.keep_tracebacks({death.rank: death for death in new})
        self.deaths += new
        return new

    def _tell_stuck(self, workers: Workers) -> None:
        """Show an error whose process does not end, since nobody would see it otherwise."""
        for worker in workers.stuck():
            words = worker.words()
            assert words is not None
            topic = f"stuck {self._attempt} {worker.plan.rank}"
            error = f"rank {worker.plan.rank} has raised {words.error}, but does not end"
            why = "a thread or an exit handler of the script goes on"
            self._ports.say.once(topic, f"{error}: {why}\n{words.traceback.rstrip()}")

    def _deaths(self, workers: Sequence[Worker]) -> list[Death]:
        node = self._opened().log.node
        return [worker.death(node=node, host=socket.gethostname()) for worker in workers]

    def _say_restart(self, max_restarts: int) -> None:
        assert self.first is not None
        count = f"{max_restarts - self._remaining_restarts} of {max_restarts}"
        self._ports.say.line(f"{describe(self.first)}; restarting all workers ({count})")


def _crew(group: Any, attempt: int) -> Crew:
    """Return who takes part in an attempt; torch numbers ranks node by node."""
    each = group.spec.local_world_size
    return Crew(
        attempt=attempt,
        nodes=[rank // each for rank in range(group.workers[0].world_size)],
        started_s=time.monotonic(),
    )
