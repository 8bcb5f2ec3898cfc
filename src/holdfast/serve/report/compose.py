"""What a report says, in order: the run, its incidents, the bill, what else was left behind, all events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.incidents.values import Incident
from holdfast.serve.casewords import as_clause
from holdfast.serve.report.blocks import (
    Block,
    Cards,
    Heading,
    Notice,
    Paragraph,
    Picture,
)
from holdfast.serve.report.gaps import find_gaps
from holdfast.serve.report.incidentparts import bill_parts, incident_parts
from holdfast.serve.report.leftovers import leftover_parts
from holdfast.serve.report.picture import draw_run
from holdfast.serve.report.tale import Tale
from holdfast.serve.report.wording import (
    KINDS,
    tell_gpu_h,
    tell_moment,
    tell_time,
)


def compose(tale: Tale) -> list[Block]:
    """Return the report, top to bottom."""
    return [*_opening(tale), *incident_parts(tale), *bill_parts(tale), *leftover_parts(tale)]


# --- the run --------------------------------------------------------------------------------------


def title_of(tale: Tale) -> str:
    """Return the report's title."""
    return f"{tale.name}: {tell_state(tale)}"


def tell_state(tale: Tale) -> str:
    """Return how the run is, or how it ended, as a clause."""
    view, lasted = tale.view, tell_time(tale.times.whole_s)
    ended = {
        "ended": "ended well" if view.reason == "succeeded" else f"ended ({view.reason})",
        "failed": f"failed ({view.reason})",
        "stopped": view.reason or "stopped",
        "lost": "was lost when its launcher was killed",
    }.get(view.state)
    if ended is not None:
        return f"{ended} after {lasted}"
    if not tale.files.log.records:
        return "nothing is known of it"
    words = {"starting": "starts", "degraded": "trains without some of its workers", "slow": "is slow"}
    now = words.get(view.state, "hangs" if view.state == "hung" else "trains")
    if tale.is_alive is False:
        return f"its launcher is gone without a word; after {lasted} it was last seen so: it {now}"
    return f"{now}, {lasted} after its start"


def count_incidents(incidents: tuple[Incident, ...]) -> str:
    """Return how many there were, by kind."""
    if not incidents:
        return "no incidents"
    counts = Counter(each.kind for each in incidents)
    kinds = [f"{count} {KINDS[kind]}{'s' * (count > 1)}" for kind, count in sorted(counts.items())]
    still = sum(each.is_open for each in incidents)
    said = f"{len(incidents)} incident{'s' * (len(incidents) > 1)} ({', '.join(kinds)})"
    return said + (f", {still} not over" if still else "")


def _opening(tale: Tale) -> Iterator[Block]:
    view = tale.view
    size = f"{view.world_size} ranks on {view.nodes} node{'s' * (view.nodes != 1)}" if view.nodes else ""
    start = f"started {tell_moment(view.started_at)}" if view.started_at else ""
    lead = "; ".join(filter(None, (count_incidents(view.incidents), size, start)))
    yield Paragraph(text=as_clause(lead) + ".", kind="lead")
    yield Cards(figures=tuple(_figures(tale)))
    gaps = find_gaps(tale)
    if gaps:
        yield Notice(title="What this report does not know", lines=tuple(map(as_clause, gaps)))
    drawing = draw_run(tale)
    if drawing:
        yield Heading(text="Step times")
        yield Picture(svg=drawing, label="Step times of the run", words=_tell_steps(tale))


def _figures(tale: Tale) -> Iterator[tuple[str, str, str]]:
    view, times = tale.view, tale.times
    state = {"ended": "ended", "degraded": "short of workers"}.get(view.state, view.state)
    yield "state", state, view.reason if view.reason not in ("", state) else ""
    yield "time", tell_time(times.whole_s), f"{view.attempt} restart{'s' * (view.attempt != 1)}"
    if view.step >= 0:
        yield "step", f"{view.step:,}", "the last one that was told"
    lost_s = sum(each.lost_s for each in view.incidents)
    yield "lost", tell_time(lost_s), f"{tell_gpu_h(view.bill.lost_gpu_h)} to incidents"
    saved_s = sum(each.saved_s for each in view.incidents)
    if saved_s:
        yield "saved", tell_time(saved_s), f"{tell_gpu_h(view.bill.saved_gpu_h)} by what was done"
    if times.ettr is not None:
        yield "ETTR", f"{times.ettr:.0%}", "of the time it got on, at most"


def _tell_steps(tale: Tale) -> str:
    times = sorted(value for row in tale.files.rows for value in row.duration_s.values())
    middle, last = times[len(times) // 2], times[-1]
    counted = f"{len(times):,} times that guards wrote down, one per rank and second"
    return f"Steps took {tell_time(middle)} in the median and {tell_time(last)} at most, of {counted}."
