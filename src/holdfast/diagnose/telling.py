"""Findings as sentences, the same at the terminal, in the log and on the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.diagnose.wording import name_ranks
from holdfast.findings import Cause, ChangePoint, Suspect
from holdfast.values import Probed, Profiled

_CAUSES: dict[Cause, tuple[str, str]] = {
    "compute": ("its compute is slow", "their compute is slow"),
    "cpu_contention": ("its CPU is contended", "their CPUs are contended"),
    "link": ("its network is slow", "their network is slow"),
    "data_loading": ("its data loading is slow", "their data loading is slow"),
    "storage": ("its storage is slow", "their storage is slow"),
    "garbage_collection": (
        "Python's garbage collector holds it up",
        "Python's garbage collector holds them up",
    ),
    "host_memory": ("its host's memory is slow or short", "the memory of their hosts is slow or short"),
    "input_imbalance": ("it has more input than the others", "they have more input than the others"),
    "stage_imbalance": (
        "its stage has more to do than the others",
        "their stage has more to do than the others",
    ),
    "hang": ("it hangs", "they hang"),
    "death": ("it is dead", "they are dead"),
    "unknown": ("the cause is not known", "the cause is not known"),
}
"""Of one rank, and of several."""
_MOST_HOSTS = 4


def tell_change(change: ChangePoint) -> str:
    """Return a change as a clause."""
    times = f"{tell_duration(change.after_s)} instead of {tell_duration(change.before_s)}"
    if change.direction == "slow":
        # A log may say anything, also that steps took no time before.
        ratio = change.after_s / change.before_s if change.before_s > 0 else 1.0
        return f"steps take {ratio:.2f}x as long since step {change.step}: {times}"
    again = "as fast as before" if not change.is_slow else "faster, but still slow"
    return f"steps are {again} since step {change.step}: {times}"


def tell_suspect(suspect: Suspect) -> str:
    """Return who is to blame, and why, as a clause."""
    where = f" on {_name_hosts(suspect.hosts)}" if suspect.hosts else ""
    if suspect.link is not None:
        who = f"link {suspect.link[0]}-{suspect.link[1]}"
        text = f"{who}{where} is slow"
    else:
        of_one, of_several = _CAUSES[suspect.cause]
        said = of_one if len(suspect.ranks) == 1 else of_several
        text = f"{name_ranks(suspect.ranks)}{where}: {said}"
    if suspect.function is not None:
        text += f", in {suspect.function}"
    return f"{text} ({suspect.confidence:.0%} sure)"


def tell_duration(seconds: float) -> str:
    """Return a duration with three digits or so, in the unit that fits it."""
    if seconds >= 0.9995:
        return f"{seconds:.2f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"


def tell_probe(probed: Probed) -> str:
    """Return the outcome of a probe as a clause."""
    parts = [f"probed {name_ranks(probed.ranks)}"]
    if probed.gemm_s:
        parts.append(f"compute {_span(probed.gemm_s.values())}")
    if probed.links_s:
        parts.append(f"links {_span(probed.links_s.values())}")
    count = len(probed.suspects)
    outcome = f"{count or 'nobody'} {'stand' if count > 1 else 'stands'} out"
    return "; ".join([", ".join(parts) + f": {outcome}", *probed.silent])


def tell_profile(profiled: Profiled) -> str:
    """Return the outcome of a profile as a clause."""
    count = len(profiled.suspects)
    steps = f"steps {profiled.first_step} to {profiled.last_step}"
    outcome = f"{count or 'nobody'} {'stand' if count > 1 else 'stands'} out"
    parts = [f"profiled {steps} ({profiled.why}): {outcome}"]
    if profiled.missing:
        parts.append(f"no profile of {name_ranks(profiled.missing)}")
    parts.append(f"training stood still for {tell_duration(profiled.blocked_s)}")
    return "; ".join(parts)


def _name_hosts(hosts: Sequence[str]) -> str:
    """Return hosts, all where they are few: a line is read by people."""
    if len(hosts) <= _MOST_HOSTS + 1:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:_MOST_HOSTS])} and {len(hosts) - _MOST_HOSTS} other hosts"


def _span(times_s: Iterable[float]) -> str:
    listed = list(times_s)
    return f"{tell_duration(min(listed))} to {tell_duration(max(listed))}"
