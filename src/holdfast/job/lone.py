"""A worker under another launcher than ours: the same training, but the first failure ends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import HashStore, PrefixStore, Store, TCPStore

from holdfast.commit import Agreement
from holdfast.errors import InputError, TrainingLostError
from holdfast.membership import Feed, Joined, Regroup, Reported
from holdfast.plan.choose import choose
from holdfast.plan.problem import Costs, Problem, make_speeds, parse_worker


class LoneMember:
    """A membership in a job whose launcher cannot let it survive: the first generation is the last."""

    survives = False
    host = "localhost"
    on_void: Callable[[int], None] = staticmethod(lambda generation: None)
    on_feed: Callable[[Feed], None] = staticmethod(lambda feed: None)
    on_invite: Callable[[int], None] = staticmethod(lambda generation: None)

    def __init__(self, joined: Joined, *, session: int, env: Mapping[str, str]) -> None:
        self._needs = joined.needs
        self._speeds: dict[str, float] = {}
        self._world = joined.needs.dp * joined.needs.pp
        self._prefix = f"holdfast/{session}/{env.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        self._store = _launcher_store(joined.rank, self._world, env)

    def regroup(self, report: Reported, *, is_wanted: bool) -> Regroup:
        if not is_wanted:
            raise TrainingLostError(
                "a worker is gone, and nobody but `holdfast run` lets the others go on without it "
                f"({report.lost})"
            )
        if report.cap is not None and self._world > 1:
            raise InputError("memory_bytes is only heeded under `holdfast run`, where all workers' are known")
        if report.swap is not None:
            raise InputError("workers exchange their places only under `holdfast run`")
        needs = self._needs
        self._speeds = self._speeds if report.speeds is None else report.speeds
        changed = {parse_worker(name): speed for name, speed in self._speeds.items()}
        problem = Problem(
            dp=needs.dp,
            pp=needs.pp,
            microbatches=needs.microbatches,
            costs=tuple(Costs(*each) for each in needs.costs),
            comm=needs.comm,
            memory=None if report.cap is None else (report.cap,),
            speeds=make_speeds(needs.dp, needs.pp, changed),
        )
        return Regroup(
            generation=report.generation + 1,
            members=list(range(self._world)),
            agreement=Agreement(version=report.standing.version),
            schedule=str(choose(problem, fault_free=needs.fault_free)),
        )

    def store(self, generation: int, name: str) -> Store:
        return PrefixStore(f"{self._prefix}/{generation}/{name}", self._store)

    def leave(self) -> None:
        return

    def drop(self) -> None:
        return


def _launcher_store(rank: int, world: int, env: Mapping[str, str]) -> Any:
    if world == 1:
        return HashStore()
    try:
        host, port = env["MASTER_ADDR"], int(env["MASTER_PORT"])
    except (KeyError, ValueError):
        raise TrainingLostError(
            f"this is one of {world} workers, but MASTER_ADDR and MASTER_PORT are not set: "
            "start them with `holdfast run`"
        ) from None
    is_host = rank == 0 and env.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return TCPStore(host, port, world, is_host, timeout=timedelta(seconds=300))
