"""A report's words: durations, bills, an incident in one sentence, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.diagnose.telling import tell_duration
from holdfast.incidents.order import moment_s, seconds_between
from holdfast.incidents.standstill import RESTARTED
from holdfast.incidents.trouble import ENDINGS
from holdfast.incidents.values import Incident, Stage
from holdfast.incidents.words import name_fault
from holdfast.serve.casewords import as_clause, few_ranks, tell_shortly
from holdfast.serve.nextsteps import NEXT_STEPS, next_step
from holdfast.values import FaultInjected, FaultRelieved, Record

KINDS = {"slow": "slow job", "death": "death", "hang": "hang"}
_MOST_NEXT = 3


def tell_time(seconds: float) -> str:
    """Return a duration that may be days, with its unit."""
    if seconds < 0.0005:
        return "0 s"
    if seconds < 120:
        return tell_duration(seconds) if seconds < 9.995 else f"{seconds:.1f} s"
    minutes = seconds / 60
    if minutes < 120:
        return f"{minutes:.1f} min"
    return f"{minutes / 60:.1f} h" if minutes < 2880 else f"{minutes / 1440:.1f} days"


def tell_gpu_h(hours: float) -> str:
    """Return GPU-hours with two digits that count."""
    if hours == 0:
        return "0 GPU-h"
    return f"{hours:,.0f} GPU-h" if hours >= 100 else f"{hours:.2g} GPU-h"


def tell_clock(at: str) -> str:
    """Return the time of day of a moment in UTC, as it was written; what is no time as it is."""
    return at[11:23] if moment_s(at) is not None and len(at) > 18 else at


def tell_moment(at: str) -> str:
    """Return date and time in UTC."""
    return f"{at[:10]} {at[11:19]} UTC" if moment_s(at) is not None and len(at) > 18 else at or "not known"


def name_incident(incident: Incident) -> str:
    """Return a heading."""
    if incident.kind == "slow":
        return "Slow job" + (f": {few_ranks(incident.ranks)}" if incident.ranks else "")
    whom = few_ranks(incident.ranks) if incident.ranks else "nobody is named"
    return f"{'Death' if incident.kind == 'death' else 'Hang'}: {whom}"


def tell_incident(incident: Incident) -> str:
    """Return what happened in one sentence."""
    parts = [_tell_begin(incident)]
    if incident.kind == "slow":
        who = "nobody could be named" if not incident.suspects else _accuse(incident)
        parts += [who, *_tell_deeds(incident)]
    elif (after := _first(incident, "done")) is not None:
        waited = tell_time(seconds_between(incident.opened_at, after.at))
        parts.append(f"the others went on after {waited}")
    return as_clause(f"{'; '.join(parts)}; {_tell_end(incident)}.")


def _tell_begin(incident: Incident) -> str:
    said = incident.words
    if incident.kind != "death":
        return said if not incident.suspects or incident.kind == "slow" else f"{said}: {_accuse(incident)}"
    causes = [each.words for each in incident.stages if each.name == "detected" and " died: " in each.words]
    first = causes[0] if causes else said
    others = len(incident.ranks) - 1
    return first if not others else f"{first}, and {others} other{'s' * (others > 1)}"


def _accuse(incident: Incident) -> str:
    return " and ".join(tell_shortly(each) for each in incident.suspects[:2])


def _tell_deeds(incident: Incident) -> list[str]:
    deeds = [each.words.partition(" ")[0] for each in incident.stages if each.name == "done"]
    levels = list(dict.fromkeys(each for each in deeds if each in ("S1", "S2", "S3", "S4", "undo")))
    return [f"{' and '.join(levels)} {'was' if len(levels) == 1 else 'were'} done"] if levels else []


def _tell_end(incident: Incident) -> str:
    if incident.closed_at is None:
        return "it is not over"
    lasted = tell_time(seconds_between(incident.opened_at, incident.closed_at))
    closing = next(each for each in reversed(incident.stages) if each.name == "closed")
    if closing.words == RESTARTED:
        return f"all workers were started again, and training went on {lasted} later"
    if closing.words in ENDINGS:
        return f"{closing.words} {lasted} later"
    return f"over {lasted} after it was noticed"


def _first(incident: Incident, name: str) -> Stage | None:
    return next((each for each in incident.stages if each.name == name), None)


def tell_worth(incident: Incident) -> list[str]:
    """Return what was done, and what it brought, as sentences."""
    done = [each for each in incident.stages if each.name in ("decided", "done", "verified")]
    lines = [as_clause(each.words) + "." for each in done]
    if not lines and incident.stages[-1].words == RESTARTED:
        return ["All workers were started again."]
    if not lines:
        return ["Nothing was done about it."]
    if incident.saved_s > 0:
        lines.append(
            f"Without it {tell_time(incident.saved_s)} more would have been lost; "
            f"it took {tell_time(incident.paid_s)} of pauses."
        )
    return lines


def tell_next(incident: Incident, ranks: int) -> list[str]:
    """Return what somebody on call would do next."""
    steps = [next_step(each, ranks) for each in incident.suspects[:_MOST_NEXT]]
    if incident.kind == "death":
        steps = [NEXT_STEPS["death"]]
    elif incident.kind == "hang" and not steps:
        steps = [NEXT_STEPS["hang"]]
    return list(dict.fromkeys(steps)) or [NEXT_STEPS["unknown"]]


def faults_behind(incident: Incident, records: Sequence[Record]) -> list[str]:
    """Return faults of the lab that were in force on its ranks when it began, as sentences."""
    opened_s = moment_s(incident.opened_at)
    if opened_s is None:
        return []
    over = {
        each.event.fault: at_s
        for each in records
        if isinstance(each.event, FaultRelieved) and (at_s := moment_s(each.stamp.at)) is not None
    }
    found = []
    for each in records:
        at_s = moment_s(each.stamp.at)
        if not isinstance(each.event, FaultInjected) or at_s is None or at_s > opened_s + 1:
            continue
        fault = each.event.fault
        ends = fault.target if isinstance(fault.target, tuple) else (fault.target,)
        is_over = fault.kind in ("kill", "hang") and at_s < opened_s - 30
        if set(ends) & set(incident.ranks) and over.get(fault, opened_s) >= opened_s and not is_over:
            found.append(
                f"The lab had injected a fault: {name_fault(fault)}, from step {each.event.step} on."
            )
    return found
