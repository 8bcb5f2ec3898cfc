"""What a run has left behind, as parts of a report: profiles, dumps, last words, workers, events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.diagnose.telling import tell_suspect
from holdfast.incidents.order import merge_nodes
from holdfast.incidents.words import phrase, short_cause
from holdfast.serve.casewords import as_clause, few_ranks, headline, tell_shortly
from holdfast.serve.nextsteps import next_step
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
from holdfast.serve.report.incidentparts import MOST_EVIDENCE, MOST_SUSPECTS
from holdfast.serve.report.masking import mask_command, mask_setting
from holdfast.serve.report.runfiles import LastWords, Profile
from holdfast.serve.report.tale import Tale
from holdfast.serve.report.wording import (
    tell_clock,
    tell_moment,
)
from holdfast.values import Record

MOST_EVENTS = 2000
_MOST_WORKERS = 128


def leftover_parts(tale: Tale) -> Iterator[Block]:
    """Yield all of it."""
    yield from _profiles(tale)
    yield from _hang(tale)
    yield from _last_words(tale)
    yield from _workers(tale)
    yield from _about(tale)
    yield from _events(tale)


def _profiles(tale: Tale) -> Iterator[Block]:
    if not tale.files.profiles:
        return
    yield Heading(text="Profiles")
    for profile in tale.files.profiles:
        yield Frame(title=as_clause(headline(profile.case)), kind="calm", parts=tuple(_profile(profile)))


def _profile(profile: Profile) -> Iterator[Part]:
    case = profile.case
    yield Paragraph(text=f"{profile.folder}: {case.about}.", kind="small")
    for suspect in case.verdict.suspects[:MOST_SUSPECTS]:
        yield Items(title=as_clause(tell_shortly(suspect)), lines=tuple(suspect.evidence[:MOST_EVIDENCE]))
        yield Paragraph(text=next_step(suspect, len(case.verdict.ranks)), kind="next")
    yield Paragraph(text="All of it: holdfast diagnose on the run directory, with --html.", kind="small")


def _hang(tale: Tale) -> Iterator[Block]:
    hang = tale.files.hang
    if hang is None:
        return
    yield Heading(text="Flight Recorder")
    lines = [line for each in hang.suspects for line in (tell_suspect(each), *each.evidence[:MOST_EVIDENCE])]
    lines = lines or ["nobody can be blamed by the dumps"]
    if hang.victims:
        lines.append(
            f"{len(hang.victims)} of {hang.world_size} ranks wait for others: {few_ranks(hang.victims)}"
        )
    yield Items(lines=tuple(as_clause(line) + "." for line in lines))


def _last_words(tale: Tale) -> Iterator[Block]:
    if not tale.files.words:
        return
    yield Heading(text="Last words of workers that died")
    for words in tale.files.words:
        yield Frame(
            title=f"Rank {words.death.rank}, attempt {words.attempt}",
            kind="death",
            parts=tuple(_words(words)),
        )


def _words(words: LastWords) -> Iterator[Part]:
    death = words.death
    yield Paragraph(
        text=as_clause(f"{short_cause(death)}; process {death.pid} on {death.host}, node {death.node}.")
    )
    if not words.traceback and not words.lines:
        yield Paragraph(text="It left no traceback, and had printed nothing.", kind="small")
    if words.traceback:
        yield Code(title="Traceback", lines=tuple(words.traceback))
    # A log often ends with the very traceback.
    if words.lines and words.lines[-5:] != words.traceback[-5:]:
        yield Code(title=f"Last lines of {words.log}", lines=tuple(words.lines))


def _workers(tale: Tale) -> Iterator[Block]:
    workers = tale.view.workers
    if not workers:
        return
    yield Heading(text="Workers")
    if len(workers) > _MOST_WORKERS:
        counts = Counter(each.state for each in workers)
        said = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
        yield Paragraph(text=f"{len(workers):,} workers: {said}. Those that are not well are listed.")
        workers = tuple(each for each in workers if each.state in ("slow", "hung", "dead", "left"))
    rows = [
        (
            str(each.rank),
            each.state,
            "" if each.node < 0 else str(each.node),
            each.host,
            _name_place(each.place, tale.view.pp),
        )
        for each in workers[:_MOST_WORKERS]
    ]
    names = ("rank", "state", "node", "host", "place" if tale.view.pp == 1 else "pipeline.stage")
    is_placed = any(row[-1] for row in rows)
    shown = rows if is_placed else [row[:-1] for row in rows]
    yield Grid(names=names if is_placed else names[:-1], rows=tuple(shown))


def _name_place(place: int | None, pp: int) -> str:
    if place is None:
        return ""
    return str(place) if pp == 1 else f"{place // pp}.{place % pp}"


def _about(tale: Tale) -> Iterator[Block]:
    run = tale.files.run
    yield Heading(text="The run")
    rows = [("folder", tale.name)]
    if run is not None:
        launch = run.launch
        rows += [
            ("run id", run.run_id),
            ("command", " ".join(mask_command(launch.command or run.argv))),
            ("started", tell_moment(run.started_at)),
            ("first node", run.host),
            ("workers per node", str(launch.nproc_per_node)),
            ("nodes", f"{launch.min_nodes} to {launch.max_nodes}"),
            ("restarts allowed", str(launch.max_restarts)),
            ("versions", ", ".join(f"{name} {value}" for name, value in sorted(run.versions.items()))),
        ]
        rows += [
            (f"setting {name}", f"{mask_setting(name, each.value)} (from: {each.origin})")
            for name, each in sorted(run.settings.items())
            if each.origin != "default"
        ]
    elif tale.view.argv:
        rows.append(("command", " ".join(mask_command(tale.view.argv))))
    yield Grid(names=("what", "value"), rows=tuple(rows))


def _events(tale: Tale) -> Iterator[Block]:
    records = [line for line in merge_nodes(tale.files.log.records) if isinstance(line, Record)]
    yield Heading(text="All events")
    if len(records) > MOST_EVENTS:
        half = MOST_EVENTS // 2
        yield Paragraph(
            text=f"The first {half:,} and the last {half:,} of {len(records):,}; all are in events.jsonl."
        )
        records = [*records[:half], *records[-half:]]
    rows = [
        (tell_clock(each.stamp.at), str(each.stamp.node), str(each.stamp.attempt), phrase(each.event))
        for each in records
    ]
    yield Grid(names=("time (UTC)", "node", "attempt", "what"), rows=tuple(rows))
