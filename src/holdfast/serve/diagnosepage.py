"""Profiles of a job as one page: the verdict, the suspects and what to do next, then what was seen.

The page needs no network and no other file. Whatever traces say is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from holdfast.diagnose.case import Case
from holdfast.diagnose.telling import tell_duration
from holdfast.findings import Suspect
from holdfast.serve import heatmap, timelines
from holdfast.serve.casewords import (
    as_clause,
    clean,
    cost_share,
    few_ranks,
    headline,
    tell_length,
    tell_shortly,
)
from holdfast.serve.nextsteps import next_step
from holdfast.serve.pageparts import STYLE, cards, clip, document, listed, table
from holdfast.serve.rankmaps import draw_functions, draw_stages
from holdfast.serve.ranktable import RankTable, suspect_rows, tabulate
from holdfast.serve.timelines import draw_timelines
from holdfast.serve.used import RESOURCES, resources_of, rows_of

_MOST_SUSPECTS = 12
_MOST_ROWS = 64
_MOST_LINES = 20
_PAGE_STYLE = (
    STYLE
    + heatmap.STYLE
    + timelines.STYLE
    + """
h1{font-size:1.7rem;margin:0 0 6px;overflow-wrap:anywhere}
section{background:var(--paper);border:1px solid var(--line);border-left:5px solid var(--guilt);
border-radius:8px;padding:14px 18px;margin:0 0 12px;overflow-wrap:anywhere}
section h3{font-size:1.05rem;margin:0 0 8px}
section table{border:0;margin:0 0 4px;overflow:visible;font-size:.95rem}
section td{border:0;padding:2px 14px 2px 0;text-align:left;white-space:normal;vertical-align:top}
section td:first-child{color:var(--soft);white-space:nowrap}
section td ul{margin:0;padding-left:1.1em}
code{font:.9em ui-monospace,'SF Mono',Menlo,Consolas,monospace;overflow-wrap:anywhere}
.next{background:var(--back);border-radius:6px;padding:8px 12px;margin:8px 0 0}
.warn{border:1px solid var(--line);border-left:5px solid var(--soft);border-radius:8px;padding:8px 14px;
margin:0 0 12px;background:var(--paper);overflow-wrap:anywhere}.warn ul{margin:4px 0;padding-left:1.2em}
tr:has(.bad){background:var(--hit)}
.used :is(th,td):nth-child(-n+3){text-align:left}
details pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85rem;margin:4px 0}
:root{--guilt:#d55e00;--hit:#fff3e8}
@media(prefers-color-scheme:dark){:root{--guilt:#ff8b4d;--hit:#33261c}}
"""
)


def draw_page(case: Case) -> str:
    """Return the page as HTML."""
    found = tabulate(case)
    title = as_clause(headline(case))
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(clip(as_clause(_tell_about(case)), 600))}</p>',
        cards(_figures(case)),
        _gaps(case),
        *_suspects(case, found),
    ]
    if found.ranks:
        parts += ["<h2>Where the time goes: functions by ranks</h2>", draw_functions(case, found)]
    stages = draw_stages(case, found)
    parts += ["<h2>Own work: stages by pipelines</h2>", stages] if stages else []
    lanes = draw_timelines(case, found)
    parts += ["<h2>What a suspect did, step by step</h2>", lanes] if lanes else []
    return document(title, _PAGE_STYLE, [*parts, *_usage(case)])


# --- the verdict --------------------------------------------------------------------------------


def _tell_about(case: Case) -> str:
    return case.about or "nobody told when and why it was profiled"


def _figures(case: Case) -> list[tuple[str, str, str]]:
    verdict = case.verdict
    figures = []
    share = cost_share(case, verdict.suspects[0]) if verdict.suspects else None
    if share is not None:
        worth = share * len(verdict.ranks)
        said = (
            f"of the time: as much as {worth:,.{1 if worth < 10 else 0}f} of {len(verdict.ranks):,} ranks do"
        )
        figures.append(("to be won back", f"{share:.0%}", said))
    profiled = f"of {verdict.world_size:,}"
    hosts = len(set(case.hosts.values()))
    if hosts:
        profiled += f", on {hosts:,} host{'s' * (hosts > 1)}"
    figures.append(("ranks profiled", f"{len(verdict.ranks):,}", profiled))
    figures.append(("length of the profiles", tell_duration(verdict.span_s), tell_length(case)))
    if verdict.victims:
        figures.append(("wait for others", f"{len(verdict.victims):,}", "ranks"))
    if case.blocked_s is not None:
        figures.append(("training stood still", tell_duration(case.blocked_s), "at most, to be profiled"))
    return figures


def _gaps(case: Case) -> str:
    """Return what is not known: who has no profile, and what could not be read."""
    parts = []
    if case.verdict.missing:
        said = (
            f"There is no profile of {few_ranks(case.verdict.missing)}: nothing here speaks for or against "
        )
        said += "them." if len(case.verdict.missing) > 1 else "it."
        parts.append(escape(said))
    if case.unread:
        parts.append(f"Not read:{listed(case.unread, _MOST_LINES)}")
    return f'<div class="warn">{"<br/>".join(parts)}</div>' if parts else ""


# --- suspects -----------------------------------------------------------------------------------


def _suspects(case: Case, found: RankTable) -> list[str]:
    suspects = case.verdict.suspects
    if not suspects:
        return []
    rows = suspect_rows(case, found)
    parts = [f"<h2>{'The suspect' if len(suspects) == 1 else 'Suspects, the dearest first'}</h2>"]
    for suspect, mine in list(zip(suspects, rows, strict=True))[:_MOST_SUSPECTS]:
        stack = found.functions[mine[0]].stack if mine else []
        parts.append(_suspect(case, suspect, stack))
    if len(suspects) > _MOST_SUSPECTS:
        parts.append(f'<p class="how">And {len(suspects) - _MOST_SUSPECTS:,} more that cost less.</p>')
    return parts


def _suspect(case: Case, suspect: Suspect, stack: Sequence[str]) -> str:
    hosts = clip(", ".join(suspect.hosts), 200)
    where = few_ranks(suspect.ranks) + (f" on {hosts}" if hosts else "")
    facts = [
        ("cause", escape(suspect.cause.replace("_", " "))),
        ("where", escape(where)),
        ("costs", escape(_tell_cost(case, suspect))),
        ("waiting for it", escape(few_ranks(suspect.victims) if suspect.victims else "nobody")),
        ("seen", listed([clean(sentence, 400) for sentence in suspect.evidence], 8) or "nothing was noted"),
    ]
    if suspect.function is not None:
        facts.insert(0, ("function", _function(suspect.function, stack)))
    step = next_step(suspect, len(case.verdict.ranks))
    rows = "".join(f"<tr><td>{name}</td><td>{said}</td></tr>" for name, said in facts)
    return (
        f"<section><h3>{escape(as_clause(tell_shortly(suspect)))}</h3><table><tbody>{rows}</tbody></table>"
        f'<p class="next"><b>Next step.</b> {escape(step)}</p></section>'
    )


def _function(name: str, stack: Sequence[str]) -> str:
    """Return a function, with its callers to be unfolded."""
    shown = f"<code>{escape(clip(name, 400))}</code>"
    if len(stack) < 2:
        return shown
    lines = escape("\n".join(clean(each, 300) for each in stack[1:41]))
    return f"{shown}<details><summary>called by</summary><pre>{lines}</pre></details>"


def _tell_cost(case: Case, suspect: Suspect) -> str:
    share = cost_share(case, suspect)
    if share is None or suspect.cost_s is None:
        return "not known"
    said = f"{share:.1%} of the time: {tell_duration(suspect.cost_s)} of {tell_duration(case.verdict.span_s)}"
    if suspect.slowdown is not None:
        said += f"; steps take {suspect.slowdown:.2f}x as long as without it"
    return said


# --- resources ----------------------------------------------------------------------------------


def _usage(case: Case) -> list[str]:
    """Return who used how much of what, the guilty first."""
    resources = resources_of(case)
    if not resources:
        return []
    rows = []
    for used in rows_of(case, resources, _MOST_ROWS):
        rank = "median" if used.rank is None else str(used.rank)
        shown = f'<span class="bad">{rank}</span>' if used.mark == "suspect" else rank
        rows.append([shown, used.mark, escape(clip(used.host, 60)), *used.amounts])
    said = "Means over the profile; CPU as share of one core."
    if len(case.usage) > _MOST_ROWS:
        said += f" {_MOST_ROWS} of {len(case.usage):,} ranks, suspects first."
    names = ["rank", "", "host", *(RESOURCES[name] for name in resources)]
    return [
        "<h2>What the ranks used</h2>",
        f'<div class="used">{table(names, rows)}</div>',
        f'<p class="how">{said}</p>',
    ]
