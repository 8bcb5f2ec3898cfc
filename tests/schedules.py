"""Schedules that tests start from, made by rules too simple to share a mistake with the planner."""

from __future__ import annotations

from holdfast.plan.ops import Op, Schedule
from holdfast.plan.problem import Problem, Worker, make_speeds
from holdfast.plan.timing import Timed, time_schedule


def make_problem(
    dp: int = 3, pp: int = 4, microbatches: int = 6, *, dead: str = "", slow: str = "", **more: object
) -> Problem:
    """Return a problem; dead workers are given as ``1.2 0.3``, slow ones as ``0.1=0.5``."""
    changed = {_worker(word): 0.0 for word in dead.split()}
    changed |= {_worker(word.split("=")[0]): float(word.split("=")[1]) for word in slow.split()}
    speeds = make_speeds(dp, pp, changed)
    return Problem(dp=dp, pp=pp, microbatches=microbatches, speeds=speeds, **more)  # type: ignore[arg-type]


def one_f_one_b(problem: Problem, *, is_split: bool = False) -> Schedule:
    """Return 1F1B; what a dead worker would do is appended to its peers' work by micro-batch, in turns.

    The micro-batches of a stage are numbered by arrival, so that all stages see the same order and nobody
    waits in a circle.
    """
    orders: list[list[Op]] = []
    for worker in problem.workers:
        mine = [
            (pipeline, microbatch)
            for microbatch in range(problem.microbatches)
            for pipeline in range(problem.dp)
            if executor(problem, pipeline, microbatch, worker.stage) == worker.pipeline
        ]
        orders.append(_order(mine, worker.stage, problem.pp - worker.stage, is_split=is_split))
    return Schedule(
        dp=problem.dp, pp=problem.pp, microbatches=problem.microbatches, orders=tuple(map(tuple, orders))
    )


def executor(problem: Problem, pipeline: int, microbatch: int, stage: int) -> int:
    """Return the pipeline whose worker runs a micro-batch at a stage."""
    live = problem.live(stage)
    return pipeline if pipeline in live else live[microbatch % len(live)]


def timed_1f1b(problem: Problem, *, is_split: bool = False) -> Timed:
    """Return 1F1B with its times."""
    return time_schedule(problem, one_f_one_b(problem, is_split=is_split))


def _order(mine: list[tuple[int, int]], stage: int, warm_up: int, *, is_split: bool) -> list[Op]:
    ahead = len(mine) if is_split else min(warm_up, len(mine))
    forwards = [Op("F", pipeline, microbatch, stage) for pipeline, microbatch in mine]
    order = forwards[:ahead]
    for index, (pipeline, microbatch) in enumerate(mine):
        kinds = "IW" if is_split else "B"
        order += [Op(kind, pipeline, microbatch, stage) for kind in kinds]
        order += forwards[ahead + index : ahead + index + 1]
    return order


def _worker(text: str) -> Worker:
    pipeline, stage = text.split(".")
    return Worker(int(pipeline), int(stage))
