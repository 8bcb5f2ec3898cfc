"""The incidents of a run as parts of a report, each with its timeline, and the bill."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.incidents.order import seconds_between
from holdfast.incidents.story import make_bill
from holdfast.incidents.values import Incident, Stage
from holdfast.serve.casewords import as_clause, tell_shortly
from holdfast.serve.report.blocks import (
    Block,
    Code,
    Frame,
    Grid,
    Heading,
    Items,
    Paragraph,
    Part,
)
from holdfast.serve.report.tale import Tale
from holdfast.serve.report.wording import (
    faults_behind,
    name_incident,
    tell_clock,
    tell_gpu_h,
    tell_incident,
    tell_next,
    tell_time,
    tell_worth,
)
from holdfast.values import JobHung

_MOST_INCIDENTS = 100
MOST_EVIDENCE = 8
MOST_SUSPECTS = 6
_FIRST_STAGES, _LAST_STAGES = 40, 12
_MOST_STACKS = 3
_MOST_FRAMES = 12


def incident_parts(tale: Tale) -> Iterator[Block]:
    """Yield every incident: what happened, when, who and why, what was done, what it cost, what to do."""
    incidents = tale.view.incidents
    yield Heading(text="Incidents")
    if not incidents:
        yield Paragraph(text="None: nobody was slow for long, nobody died, and nobody hung.")
    for number, incident in enumerate(incidents[:_MOST_INCIDENTS], start=1):
        parts = tuple(_incident(tale, incident))
        yield Frame(title=f"{number}. {name_incident(incident)}", kind=incident.kind, parts=parts)
    if len(incidents) > _MOST_INCIDENTS:
        yield Paragraph(text=f"And {len(incidents) - _MOST_INCIDENTS} more, of which only the bill tells.")


def _incident(tale: Tale, incident: Incident) -> Iterator[Part]:
    yield Paragraph(text=tell_incident(incident))
    yield Grid(names=("time (UTC)", "after", "stage", "what"), rows=tuple(_timeline(incident)))
    why = [*faults_behind(incident, tale.files.log.records), *_evidence(incident)]
    if why:
        yield Items(title="Who and why", lines=tuple(why))
    yield from _stacks(tale, incident)
    yield Items(title="What was done, and what it brought", lines=tuple(tell_worth(incident)))
    bill = make_bill([incident], tale.view.world_size)
    yield Paragraph(
        text=f"The bill: {tell_time(incident.lost_s)} lost ({tell_gpu_h(bill.lost_gpu_h)}), "
        f"of which {tell_time(incident.paid_s)} for what was done; {tell_time(incident.saved_s)} saved."
    )
    for step in tell_next(incident, tale.view.world_size):
        yield Paragraph(text=step, kind="next")


def _timeline(incident: Incident) -> Iterator[tuple[str, ...]]:
    """Yield its stages; of very many, as when thousands die together, the first and the last."""
    stages = list(incident.stages)
    first, last = stages[:_FIRST_STAGES], stages[_FIRST_STAGES:][-_LAST_STAGES:]
    left_out = len(stages) - len(first) - len(last)
    for stage in first:
        yield _moment(incident, stage)
    if left_out:
        yield "", "", "", f"{left_out:,} more"
    for stage in last:
        yield _moment(incident, stage)


def _moment(incident: Incident, stage: Stage) -> tuple[str, ...]:
    after = tell_time(seconds_between(incident.opened_at, stage.at))
    return tell_clock(stage.at), f"+{after}", stage.name, stage.words


def _stacks(tale: Tale, incident: Incident) -> Iterator[Part]:
    """Yield where ranks stood, those to blame first."""
    told = {stage.event_id for stage in incident.stages}
    stacks: dict[int, list[str]] = {}
    for record in tale.files.log.records:
        if isinstance(record.event, JobHung) and record.stamp.event_id in told:
            stacks |= {int(rank): lines for rank, lines in record.event.stacks.items() if rank.isdecimal()}
    first = sorted(stacks, key=lambda rank: (rank not in incident.ranks, rank))
    for rank in first[:_MOST_STACKS]:
        yield Code(
            title=f"Where rank {rank} stood, innermost first", lines=tuple(stacks[rank][:_MOST_FRAMES])
        )
    if len(first) > _MOST_STACKS:
        yield Paragraph(
            text=f"Stacks of {len(first) - _MOST_STACKS} more ranks are in the log.", kind="small"
        )


def _evidence(incident: Incident) -> Iterator[str]:
    for suspect in incident.suspects[:MOST_SUSPECTS]:
        yield as_clause(tell_shortly(suspect)) + "."
        yield from (f"{as_clause(each)}." for each in suspect.evidence[:MOST_EVIDENCE])
    if len(incident.suspects) > MOST_SUSPECTS:
        yield f"And {len(incident.suspects) - MOST_SUSPECTS} more suspects."


def bill_parts(tale: Tale) -> Iterator[Block]:
    """Yield what incidents cost, and how much of its time the run got on."""
    view, times = tale.view, tale.times
    yield Heading(text="The bill")
    if view.incidents:
        rows = [
            _bill_row(f"{number}. {name_incident(each)}", (each,), view.world_size)
            for number, each in enumerate(view.incidents, start=1)
        ]
        rows.append(_bill_row("all", view.incidents, view.world_size))
        names = ("incident", "lost", "of that paid", "saved", "lost, GPU-h", "saved, GPU-h")
        yield Grid(names=names, rows=tuple(rows), numbers=5)
    if times.ettr is not None:
        yield Paragraph(
            text=f"Of {tell_time(times.whole_s)}, {tell_time(times.startup_s)} were start-up, in "
            f"{tell_time(times.still_s)} nobody trained because of deaths and hangs, and "
            f"{tell_time(times.slow_s)} were lost to slow steps: the ETTR is {times.ettr:.1%} at most. "
            "A rank is taken for one GPU."
        )


def _bill_row(name: str, incidents: tuple[Incident, ...], ranks: int) -> tuple[str, ...]:
    bill = make_bill(incidents, ranks)
    amounts = [sum(getattr(each, field) for each in incidents) for field in ("lost_s", "paid_s", "saved_s")]
    return (name, *map(tell_time, amounts), f"{bill.lost_gpu_h:.2g}", f"{bill.saved_gpu_h:.2g}")
