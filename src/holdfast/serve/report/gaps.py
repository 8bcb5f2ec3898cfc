"""What a report does not know, in sentences: a reader must be able to tell silence from health."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.serve.casewords import few_ranks
from holdfast.serve.report.tale import Tale
from holdfast.serve.report.wording import tell_moment

_MOST_BROKEN = 20


def find_gaps(tale: Tale) -> list[str]:
    """Return all that is missing, cut or broken."""
    return [*_log(tale), *_end(tale), *_steps(tale), *_profiles(tale), *tale.files.unread, *_words(tale)]


def _log(tale: Tale) -> Iterator[str]:
    log = tale.files.log
    if not log.records:
        yield "the event log has no line that can be read: nothing is known of this run"
    if log.cut:
        yield f"event logs with a last line that is cut: {log.cut}"
    for line in log.broken[:_MOST_BROKEN]:
        yield f"a line of the event log is broken: {line}"
    if len(log.broken) > _MOST_BROKEN:
        yield f"and {len(log.broken) - _MOST_BROKEN} more broken lines"
    nodes = {record.stamp.node for record in log.records}
    if tale.view.nodes > len(nodes):
        yield f"the run had {tale.view.nodes} nodes, and there are event logs of {len(nodes)}"
    if len(nodes) > 1:
        yield f"times are of the clocks of {len(nodes)} nodes: events of two nodes may be in another order"


def _end(tale: Tale) -> Iterator[str]:
    if tale.has_ended or not tale.files.log.records:
        return
    told = f"nobody has told an end; the last that was heard is of {tell_moment(tale.heard_at)}"
    if tale.is_alive is None:
        yield f"{told}, and whether its launcher lives cannot be seen from here"
    elif tale.is_alive:
        yield "the run still goes on: this is how it is now"
    else:
        yield f"{told}; its launcher does not live any more"


def _steps(tale: Tale) -> Iterator[str]:
    lost: dict[tuple[int, int], int] = {}
    for row in tale.files.rows:
        key = row.node, row.attempt
        lost[key] = max(lost.get(key, 0), row.lost)
    if any(lost.values()):
        yield f"{sum(lost.values()):,} steps were overwritten before a guard could read them"
    if tale.view.attempt > 0:
        yield "how many steps were made twice after a restart is not known: the ETTR is an upper bound"


def _profiles(tale: Tale) -> Iterator[str]:
    for profile in tale.files.profiles:
        verdict = profile.case.verdict
        if verdict.missing:
            yield f"{profile.folder}: there is no profile of {few_ranks(verdict.missing)}"
        yield from (f"{profile.folder}: {each}" for each in profile.case.unread[:_MOST_BROKEN])
    hang = tale.files.hang
    if hang is not None and hang.missing:
        yield f"flight_recorder: there is no dump of {few_ranks(hang.missing)}"


def _words(tale: Tale) -> Iterator[str]:
    silent = [each.death.rank for each in tale.files.words if not each.lines and not each.traceback]
    if silent:
        yield f"no log and no traceback of {few_ranks(silent)}, which died"
