"""Turns what is known of runs into metrics, a bounded number for each, whatever its size."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from typing import get_args

import msgspec

from holdfast.incidents.values import Incident, IncidentKind, RunState, WorkerState
from holdfast.metrics.ratchet import Ratchet, Ratchets
from holdfast.metrics.seen import RunSeen
from holdfast.metrics.sheet import Sheet
from holdfast.metrics.slowest import OTHERS, find_slowest

LEVELS = ("S2", "S3", "S4", "undo")
_OTHER = "other"
"""A level of a newer guard; the label must stay bounded."""
_HOUR_S = 3600.0
_KINDS: tuple[IncidentKind, ...] = get_args(IncidentKind)
_REMEMBERED = 2000
"""Runs whose counters are kept from going down."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is shown of a run."""

    most_ranks: int = 10
    """The slowest."""
    most_hosts: int = 20
    """The slowest; the others are one."""


class Meter:
    """Shows runs; it remembers of each what was shown, so that no counter goes down."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._ratchets = Ratchets(_REMEMBERED)

    def describe(self, runs: Iterable[RunSeen], sheet: Sheet) -> None:
        """Put down all that is shown of them."""
        for seen in runs:
            if seen.is_whole:
                _describe_state(seen, sheet)
            if seen.is_live:
                self._describe_live(seen, sheet)

    def _describe_live(self, seen: RunSeen, sheet: Sheet) -> None:
        ratchet = self._ratchets.of(seen.key)
        if seen.is_whole:
            _describe_run(seen, ratchet, sheet)
            _describe_incidents(seen, ratchet, sheet)
        _describe_pace(seen, sheet)
        self._describe_slowest(seen, sheet)
        for host, lost in sorted(seen.lost_records.items()):
            name = "holdfast_guard_lost_records_total"
            sheet.put(name, ratchet.hold((name, host), lost), seen.run, host)

    def _describe_slowest(self, seen: RunSeen, sheet: Sheet) -> None:
        run = seen.run
        hosts = {worker.rank: worker.host for worker in seen.view.workers}
        ratios = find_slowest(
            seen.paces, hosts, most_ranks=self._limits.most_ranks, most_hosts=self._limits.most_hosts
        )
        for rank, ratio in ratios.ranks:
            sheet.put("holdfast_worker_own_ratio", ratio, run, str(rank), hosts.get(rank, ""))
        for host, ratio in ratios.hosts:
            sheet.put("holdfast_host_own_ratio", ratio, run, host)
        if ratios.omitted_ratio is not None:
            sheet.put("holdfast_host_own_ratio", ratios.omitted_ratio, run, OTHERS)
        sheet.put("holdfast_hosts_omitted", ratios.omitted_hosts, run)


def _describe_state(seen: RunSeen, sheet: Sheet) -> None:
    run = seen.run
    facts = {"name": seen.name, "key": seen.key, "run_id": seen.view.run_id, "host": seen.host}
    sheet.put_info("holdfast_run_info", facts, run)
    for state in get_args(RunState):
        sheet.put("holdfast_run_state", seen.view.state == state, run, state)
    sheet.put("holdfast_run_heard_timestamp_seconds", seen.heard_s, run)


def _describe_run(seen: RunSeen, ratchet: Ratchet, sheet: Sheet) -> None:
    run, view = seen.run, seen.view
    sheet.put("holdfast_run_attempt", view.attempt, run)
    sheet.put("holdfast_run_nodes", view.nodes, run)
    step = max(seen.step, view.step)
    if step >= 0:
        sheet.put("holdfast_step", step, run)
    sheet.put("holdfast_steps_total", ratchet.count_steps(step), run)
    workers = Counter(worker.state for worker in view.workers)
    for state in get_args(WorkerState):
        sheet.put("holdfast_workers", workers[state], run, state)
    sheet.put("holdfast_deaths_total", ratchet.hold("deaths", seen.tally.deaths), run)
    actions = dict.fromkeys(LEVELS, 0)
    for level, count in seen.tally.actions.items():
        name = level if level in LEVELS else _OTHER
        actions[name] = actions.get(name, 0) + count
    for level, count in actions.items():
        sheet.put("holdfast_actions_total", ratchet.hold(("actions", level), count), run, level)
    for word, gpu_h in (
        ("lost", view.bill.lost_gpu_h),
        ("paid", view.bill.paid_gpu_h),
        ("saved", view.bill.saved_gpu_h),
    ):
        name = f"holdfast_{word}_gpu_seconds_total"
        sheet.put(name, ratchet.hold(name, gpu_h * _HOUR_S), run)


def _describe_pace(seen: RunSeen, sheet: Sheet) -> None:
    own = [pace.own_s for pace in seen.paces if pace.own_s is not None]
    if seen.paces:
        step_s = statistics.median(pace.step_s for pace in seen.paces)
        sheet.put("holdfast_step_seconds", step_s, seen.run)
    if own:
        sheet.put("holdfast_step_own_seconds", statistics.median(own), seen.run)


def _describe_incidents(seen: RunSeen, ratchet: Ratchet, sheet: Sheet) -> None:
    run = seen.run
    for kind in _KINDS:
        told = [each for each in seen.view.incidents if each.kind == kind]
        still = [each for each in told if each.is_open]
        sheet.put("holdfast_incidents_total", ratchet.hold(("incidents", kind), len(told)), run, kind)
        sheet.put("holdfast_incidents_open", len(still), run, kind)
        unattended = sum(not is_attended(each) for each in still)
        sheet.put("holdfast_incidents_unattended", unattended, run, kind)
        for word, cost_s in (
            ("lost", sum(each.lost_s for each in told)),
            ("paid", sum(each.paid_s for each in told)),
            ("saved", sum(each.saved_s for each in told)),
        ):
            name = f"holdfast_incident_{word}_seconds_total"
            sheet.put(name, ratchet.hold((name, kind), cost_s), run, kind)


def is_attended(incident: Incident) -> bool:
    """Say whether something has been done about it."""
    return any(stage.name == "done" for stage in incident.stages)
