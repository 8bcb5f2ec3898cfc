"""Which faults are due and which are over: decisions of the director as functions of values."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.faults import Fault
from holdfast.lab.strain import IN_PROCESS_KINDS

UNKNOWN_STEP_S = 0.1
"""Taken for a step's duration where none has been seen."""


class Active(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that has taken hold."""

    fault: Fault
    since_s: float
    pids: tuple[int | None, ...]
    """Processes of its targets at that time."""


def rebased(fault: Fault, steps: Mapping[int, int | None]) -> Fault:
    """Return the fault, moved to the step to come where the job is past ``at_step`` already."""
    step = max(steps[rank] or 0 for rank in fault.ranks)
    return msgspec.structs.replace(fault, at_step=step + 1) if step > fault.at_step else fault


def is_due(fault: Fault, steps: Mapping[int, int | None]) -> bool:
    """Say whether a target has reached the fault's first step.

    Faults from outside wait until the target has finished a step: before that it is starting up, and
    would be hurt in its imports, or before it has pinned itself.
    """
    reached = [step for rank in fault.ranks if (step := steps[rank]) is not None]
    first = fault.at_step if fault.kind in IN_PROCESS_KINDS else max(fault.at_step, 1)
    return bool(reached) and max(reached) >= first


def is_over(
    active: Active,
    *,
    steps: Mapping[int, int | None],
    pids: tuple[int | None, ...],
    now_s: float,
    step_s: float | None,
) -> bool:
    """Say whether a fault has lasted as long as it should, or has lost its target.

    A hung target finishes no steps, so a hang lasts ``for_steps`` times its median step before.
    """
    fault = active.fault
    if pids != active.pids:
        return True
    if fault.for_steps is None:
        return False
    if fault.kind == "hang":
        return now_s - active.since_s >= fault.for_steps * (step_s or UNKNOWN_STEP_S)
    reached = [step for rank in fault.ranks if (step := steps[rank]) is not None]
    return bool(reached) and min(reached) >= fault.at_step + fault.for_steps
