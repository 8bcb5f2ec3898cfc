"""Decisions as sentences, the same at the terminal, in the log and on the page."""

from __future__ import annotations

from holdfast.values import Applied, Decided, Dropped, IncidentClosed, Verified


def tell_decision(event: Decided) -> str:
    """Return what is to be done, and why."""
    verb = "would do" if event.is_dry else "does"
    if event.is_rollback:
        reason = f"it did not help: what was done is taken back, for about {event.price_s:.2g} s"
    elif event.is_asked:
        reason = f"a person wants what was done to be taken back, for about {event.price_s:.2g} s"
    elif event.level == "undo":
        # The trouble may go on, and somebody else be to blame for it.
        reason = (
            f"what was done since step {event.since_step} is needed no more, for about {event.price_s:.2g} s"
        )
    else:
        reason = (
            f"would have saved {event.saved_s:.1f} of the {event.lost_s:.1f} s lost since step "
            f"{event.since_step}, for about {event.price_s:.2g} s; steps should get "
            f"{event.gain * event.healthy_s:.2g} s shorter"
        )
    allowed = f" (not allowed: --act {event.level})" if event.is_dry else ""
    return f"{verb} {event.level}, {_deed(event)}: {reason}{allowed}"


def name_deed(event: Decided | Applied | Dropped | IncidentClosed) -> str:
    """Return anything about a decision as a short clause."""
    match event:
        case Decided():
            return _name_decision(event)
        case Applied():
            return tell_applied(event)
        case Dropped():
            return tell_dropped(event)
        case IncidentClosed():
            return tell_closed(event)


def _name_decision(event: Decided) -> str:
    verb = "would do" if event.is_dry else "does"
    if event.is_rollback or event.level == "undo":
        reason = "a person asked" if event.is_asked else "needed no more"
        return f"{verb} {event.level}: {'it did not help' if event.is_rollback else reason}"
    price = f"for about {event.price_s:.2g} s"
    return f"{verb} {event.level}: saves {event.saved_s:.1f} of {event.lost_s:.1f} s, {price}"


def tell_applied(event: Applied) -> str:
    """Return when it was done, and what it cost."""
    return f"{event.level} is in force from step {event.version} on, after a pause of {event.pause_s:.2f} s"


def tell_verified(event: Verified) -> str:
    """Return what came of what was done."""
    got, promised = event.gained * event.healthy_s, event.promised * event.healthy_s
    outcome = "" if event.is_enough else ", which is not enough"
    return f"{event.level}: steps got {got:.2g} s shorter, {promised:.2g} s were promised{outcome}"


def tell_dropped(event: Dropped) -> str:
    """Return why nothing came of it."""
    return f"{event.level} was not done: {event.reason}"


def tell_closed(event: IncidentClosed) -> str:
    """Return the bill."""
    return (
        f"the incident since step {event.since_step} lasted {event.lasted_s:.0f} s and cost "
        f"{event.lost_s:.1f} s, {event.paid_s:.1f} s of them for what was done about it"
    )


def _deed(event: Decided) -> str:
    if event.without:
        return f"a restart without rank {', '.join(map(str, event.without))}"
    slow = ", ".join(f"rank {rank} as {speed:.2f}" for rank, speed in sorted(event.speeds.items()))
    parts = [f"work shared out with {slow} of a healthy one" if slow else "work shared out evenly"]
    if event.moves:
        parts.append(f"{len(event.moves)} workers change places")
    return " and ".join(parts)
