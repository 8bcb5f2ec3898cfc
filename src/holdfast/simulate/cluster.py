"""A cluster with a queue: jobs come, wait, run, are preempted; nodes fail and are mended.

Gang scheduling by priority: a job starts when all its GPUs are free, or can be cleared of jobs of lower
priority that have run for two hours. Jobs whose node goes silent, or fails a health check, are requeued under
the same id. Everything random is drawn beforehand or from the given generator: a seed is a history.
"""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from holdfast.simulate.cluster_events import Witness
from holdfast.simulate.cluster_jobs import Job, Running
from holdfast.simulate.cluster_plan import (
    DAY_S,
    HOUR_S,
    ClusterPlan,
    NodeFailure,
    Request,
    draw_failure,
    draw_failures,
    draw_requests,
)
from holdfast.simulate.cluster_pool import Pool
from holdfast.simulate.cluster_record import ClusterRecord, Recorder, node_name
from holdfast.simulate.cluster_victims import victims_for
from holdfast.simulate.kernel import Kernel


def simulate_cluster(
    plan: ClusterPlan,
    rng: random.Random,
    *,
    requests: Sequence[Request] | None = None,
    failures: Sequence[NodeFailure] | None = None,
) -> ClusterRecord:
    """Return the history of a cluster; jobs and failures are drawn by the plan unless they are given."""
    asked = draw_requests(plan, rng) if requests is None else requests
    broken = draw_failures(plan, rng) if failures is None else failures
    return _Cluster(plan, rng, asked, broken).run()


class _Cluster:
    def __init__(
        self, plan: ClusterPlan, rng: random.Random, asked: Sequence[Request], broken: Sequence[NodeFailure]
    ) -> None:
        self._plan, self._rng = plan, rng
        self._kernel = Kernel()
        self._pool = Pool(plan.nodes, plan.gpus_per_node)
        self._recorder = Recorder()
        self._witness = Witness(plan, rng, self._recorder)
        self._waiting: list[Job] = []
        self._running: dict[str, Running] = {}
        self._on_node: list[dict[str, Running]] = [{} for _ in range(plan.nodes)]
        self._jobs = 0
        for request in asked:
            self._kernel.at(request.submit_s, partial(self._submit, request))
        for failure in broken:
            self._kernel.at(failure.at_s, partial(self._fail, failure))

    def run(self) -> ClusterRecord:
        until_s = self._plan.until_s
        self._kernel.run(until_s)
        self._pool.close(until_s)
        for running in self._running.values():
            self._recorder.attempt(**running.row("RUNNING", None))
        for job in self._waiting:
            nodes, _ = self._pool.needs(job.request.gpus)
            self._recorder.attempt(**job.row("PENDING", job.attempts + 1), nodes=nodes)
        return self._recorder.finish(until_s, self._pool.spent_s)

    # --- the queue --------------------------------------------------------------------------------

    def _submit(self, request: Request, exclude: tuple[int, ...] = ()) -> None:
        self._jobs += 1
        job = Job(str(self._jobs), request, self._kernel.now_s, exclude, crashes=request.crashes)
        for node in exclude:
            self._witness.exclude(node, job.id, self._kernel.now_s)
        self._queue(job)

    def _queue(self, job: Job) -> None:
        insort(self._waiting, job, key=lambda each: each.rank)
        self._schedule()

    def _schedule(self) -> None:
        """Start whoever can, the most important first; smaller jobs overtake those that cannot."""
        waiting, self._waiting = self._waiting, []
        still, smallest, is_closed = [], self._plan.nodes * self._plan.gpus_per_node + 1, False
        for job in waiting:
            gpus = job.request.gpus
            is_whole = gpus >= self._plan.gpus_per_node
            # Who is no more important and needs no less than one that could not start cannot either.
            nodes = None if gpus >= smallest or (is_closed and is_whole) else self._find(job)
            if nodes is not None:
                self._start(job, nodes)
                continue
            still.append(job)
            if is_whole:
                smallest = min(smallest, gpus)
                is_closed |= self._kernel.now_s - job.eligible_s > self._plan.patience_h * HOUR_S
        # Those that were preempted meanwhile wait as well.
        self._waiting = sorted(still + self._waiting, key=lambda each: each.rank)

    def _find(self, job: Job) -> list[int] | None:
        found = self._pool.fit(job.request.gpus, job.exclude)
        if found is not None or job.request.priority == 1:
            return found
        since_s = self._kernel.now_s - self._plan.preemptible_after_h * HOUR_S
        cleared = [
            running
            for running in self._running.values()
            if running.job.request.priority < job.request.priority and running.start_s <= since_s
        ]
        victims = victims_for(job.request.gpus, job.exclude, cleared, self._on_node, self._pool)
        for victim in victims:
            self._preempt(victim, job)
        return self._pool.fit(job.request.gpus, job.exclude) if victims else None

    # --- attempts ---------------------------------------------------------------------------------

    def _start(self, job: Job, nodes: list[int]) -> None:
        now_s, request = self._kernel.now_s, job.request
        _, each = self._pool.needs(request.gpus)
        self._pool.take(nodes, each, now_s)
        job.attempts += 1
        left_s = max(1.0, request.duration_s - job.saved_s)
        limit_s = self._plan.longest_days * DAY_S
        end = self._kernel.after(min(left_s, limit_s), partial(self._end, job.id, left_s > limit_s))
        running = Running(job, nodes, each, now_s, end)
        self._running[job.id] = running
        for node in nodes:
            self._on_node[node][job.id] = running
        clear_s = self._plan.preemptible_after_h * HOUR_S
        if left_s > clear_s:
            self._kernel.after(clear_s, self._schedule)
        if job.crashes > 0:
            after_s = self._rng.expovariate(1 / request.crash_after_s)
            self._kernel.after(after_s, partial(self._crash, running))

    def _end(self, job_id: str, is_too_long: bool) -> None:
        """Let an attempt end by itself, the way it was to."""
        running = self._running[job_id]
        outcome = "TIMEOUT" if is_too_long else running.job.request.outcome
        self._leave(running, outcome)
        self._witness.ended(running.nodes, outcome, job_id, (running.start_s, self._kernel.now_s))
        if outcome == "REQUEUED":
            running.job.request = replace(running.job.request, outcome="COMPLETED")
            running.job.is_restarted = False
            running.job.saved_s = 0.0
            self._requeue(running.job)
        self._schedule()

    def _preempt(self, victim: Running, by: Job) -> None:
        self._save(victim)
        self._leave(victim, "PREEMPTED", by.id if self._plan.logs_preemptor else None)
        self._recorder.truth(
            job=victim.job.id,
            attempt=victim.job.attempts,
            preemptor=by.id,
            is_second_order=by.is_restarted,
        )
        victim.job.is_restarted = False
        victim.job.eligible_s = self._kernel.now_s
        self._waiting.append(victim.job)

    def _leave(self, running: Running, state: str, preemptor: str | None = None) -> None:
        """Take an attempt off its nodes and note it."""
        running.end.cancel()
        self._pool.give(running.nodes, running.each, self._kernel.now_s)
        for node in running.nodes:
            del self._on_node[node][running.job.id]
        del self._running[running.job.id]
        self._recorder.attempt(**running.row(state, self._kernel.now_s), preemptor=preemptor)

    def _save(self, running: Running) -> None:
        """Keep what was done up to the last checkpoint."""
        every_s = self._plan.checkpoint_h * HOUR_S
        ran_s = self._kernel.now_s - running.start_s
        running.job.saved_s += ran_s // every_s * every_s

    def _requeue(self, job: Job) -> None:
        """Let a job wait again, under its id, after the scheduler's pause."""
        job.eligible_s = self._kernel.now_s + self._plan.requeue_delay_s
        self._kernel.at(job.eligible_s, partial(self._queue, job))

    # --- failures ---------------------------------------------------------------------------------

    def _crash(self, running: Running) -> None:
        """Let a node fail under a job that is in a crash loop, if it still runs."""
        if self._running.get(running.job.id) is not running:
            return
        running.job.crashes -= 1
        node = self._rng.choice(running.nodes)
        failure = draw_failure(self._plan, self._rng, node, self._kernel.now_s)
        self._fail(replace(failure, is_silent=True))

    def _fail(self, failure: NodeFailure) -> None:
        now_s = self._kernel.now_s
        if self._pool.is_out[failure.node]:
            return
        is_seen = failure.is_silent or failure.is_noticed
        for running in list(self._on_node[failure.node].values()):
            self._break(running, failure, is_seen)
        self._witness.failed(failure, now_s)
        if is_seen:
            self._pool.put_out(failure.node, now_s)
            row = self._witness.out(failure, now_s)
            self._kernel.after(failure.repair_s, partial(self._mend, failure.node, row))
        self._schedule()

    def _break(self, running: Running, failure: NodeFailure, is_seen: bool) -> None:
        """End an attempt by a failure; whom the scheduler does not requeue, the user submits again."""
        self._save(running)
        job = running.job
        self._leave(running, "NODE_FAIL" if failure.is_silent else "FAILED")
        self._recorder.truth(
            job=job.id,
            attempt=job.attempts,
            node=node_name(failure.node),
            cause=failure.symptom.row,
            is_noticed=failure.is_noticed,
        )
        if is_seen:
            job.is_restarted = True
            self._requeue(job)
            return
        left_s = max(60.0, job.request.duration_s - job.saved_s)
        exclude = (failure.node,) if self._rng.random() < self._plan.exclude_share else ()
        again = replace(
            job.request, duration_s=left_s, submit_s=self._kernel.now_s + 600, crashes=job.crashes
        )
        self._kernel.at(again.submit_s, partial(self._submit, again, exclude))

    def _mend(self, node: int, row: dict[str, object]) -> None:
        row["until"] = self._kernel.now_s
        self._pool.put_in(node, self._kernel.now_s)
        self._schedule()
