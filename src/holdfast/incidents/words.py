"""Events in words, the same wherever a person reads them."""

from __future__ import annotations

from holdfast.diagnose.telling import tell_change, tell_probe, tell_profile, tell_suspect
from holdfast.faults import Fault
from holdfast.mitigate.telling import name_deed, tell_verified
from holdfast.values import (
    AnyEvent,
    Applied,
    AttemptEnded,
    AttemptStarted,
    Death,
    Decided,
    Dropped,
    FaultInjected,
    FaultRelieved,
    GuardDied,
    GuardStarted,
    IncidentClosed,
    JobHung,
    JobRelieved,
    JobSlowed,
    JobStopped,
    LauncherDied,
    NodeLeft,
    Ordered,
    Probed,
    Profiled,
    Regrouped,
    RunEnded,
    RunStarted,
    StepSeen,
    SuspectsNamed,
    Verified,
    WorkerDied,
    WorkerHung,
    WorkerReturned,
)


def phrase(event: AnyEvent) -> str:  # noqa: PLR0912 - one case for each kind of event.
    """Return the event as a short clause."""
    match event:
        case RunStarted():
            return "launcher started"
        case AttemptStarted():
            return f"{len(event.ranks)} workers started"
        case WorkerDied():
            return f"rank {event.death.rank} died: {short_cause(event.death)}"
        case AttemptEnded(reason="failed", first=first) if first is not None:
            return f"all workers ended because rank {first.rank} died first"
        case AttemptEnded():
            return f"all workers ended ({event.reason})"
        case Regrouped(generation=0):
            return f"{len(event.members)} workers are connected"
        case Regrouped(newcomers=[]):
            return f"{len(event.members)} workers go on from step {event.version}"
        case Regrouped():
            who = ", ".join(map(str, event.newcomers))
            return f"rank {who} back: {len(event.members)} workers go on from step {event.version}"
        case WorkerReturned():
            return f"rank {event.rank} is started again"
        case JobStopped():
            return f"training cannot go on: {event.reason}"
        case GuardStarted():
            return "guard started"
        case GuardDied():
            return "guard died, another one is started"
        case LauncherDied():
            return "launcher died, its workers with it"
        case StepSeen():
            return f"rank {event.rank} is training"
        case WorkerHung():
            return f"rank {event.rank} hung{', and was killed' * event.is_killed}: {event.evidence}"
        case JobSlowed() | JobRelieved():
            return tell_change(event.change)
        case SuspectsNamed(suspects=[]):
            return f"nobody can be named for the slowdown since step {event.since_step}"
        case SuspectsNamed():
            return "; ".join(map(tell_suspect, event.suspects))
        case Probed():
            return "; ".join([tell_probe(event), *map(tell_suspect, event.suspects)])
        case Profiled():
            return "; ".join([tell_profile(event), *map(tell_suspect, event.suspects)])
        case JobHung(suspects=[]):
            return f"no step and no call for {event.lasted_s:.0f} s; nobody can be named for it"
        case JobHung():
            whom = "; ".join(map(tell_suspect, event.suspects))
            return f"no step and no call for {event.lasted_s:.0f} s: {whom}"
        case Decided() | Applied() | Dropped() | IncidentClosed():
            return name_deed(event)
        case Verified():
            return tell_verified(event)
        case Ordered():
            return f"{event.who} asked for {event.what}: {event.outcome}"
        case NodeLeft():
            ranks = ", ".join(map(str, event.ranks))
            return f"the node of rank {ranks} was too slow and has left ({event.scheduler})"
        case FaultInjected():
            return f"fault: {name_fault(event.fault)}, from step {event.step}"
        case FaultRelieved():
            return f"fault over: {event.fault.kind}, at step {event.step}"
        case RunEnded():
            return f"run ended: {event.reason}"


def short_cause(death: Death) -> str:
    """Return what ended the worker in a few words."""
    what = (death.error or "").partition("\n")[0] or death.signal
    return f"{what} (exit code {death.exit_code})" if what else f"exit code {death.exit_code}"


def name_fault(fault: Fault) -> str:
    """Return a fault as a few words."""
    if isinstance(fault.target, tuple):
        whom = f"link {fault.target[0]}-{fault.target[1]}"
    else:
        whom = f"rank {fault.target}"
    return f"{fault.kind} of {whom}" + ("" if fault.kind in ("kill", "hang") else f" x{fault.severity:g}")
