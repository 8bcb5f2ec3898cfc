"""A plan as one page: the figures in words, the charts, and a line that tells about the operation pointed at.

The page needs no network and no other file. Without JavaScript it is the same page, only the line is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import msgspec

from holdfast.plan.planner import Plan
from holdfast.plan.problem import Problem
from holdfast.plan.summary import Figure, say_changes, say_hit, summarize
from holdfast.serve.gantt import Panel, draw
from holdfast.serve.pagestyle import BASE

_MAX_LINES = 100
_STYLE = (
    BASE
    + """
.chart{overflow-x:auto;border:1px solid var(--line);border-radius:8px;background:var(--paper)}
.chart:focus-visible{outline:2px solid var(--mark);outline-offset:2px}
.chart svg{display:block;width:100%;min-width:860px;height:auto}
ul{columns:13em;margin:0;padding-left:1.2em;font-variant-numeric:tabular-nums}
#told{position:fixed;left:0;right:0;bottom:0;padding:10px 16px;background:var(--paper);text-align:center;
border-top:1px solid var(--line)}
#told:empty{display:none}
svg.dim rect[tabindex]{opacity:.22}
svg.dim rect.on{opacity:1}
svg rect.here{stroke:var(--mark);stroke-width:3}
rect[tabindex]{cursor:pointer;outline:none}
"""
)

_SCRIPT = """
(() => {
  const svg = document.querySelector('.chart svg'), told = document.getElementById('told');
  const ops = [...svg.querySelectorAll('rect')].filter(each => each.querySelector('title'));
  const path = op => (op.textContent.match(/micro-batch \\d+ of pipeline \\d+/) || [''])[0];
  const clear = () => {
    svg.classList.remove('dim');
    ops.forEach(each => each.classList.remove('on', 'here'));
    told.textContent = '';
  };
  const show = op => {
    clear();
    svg.classList.add('dim');
    ops.forEach(each => path(each) === path(op) && each.classList.add('on'));
    op.classList.add('here');
    told.textContent = op.textContent;
  };
  const near = (op, key) => {
    const at = op.getBoundingClientRect(), isRow = key === 'ArrowLeft' || key === 'ArrowRight';
    const sign = key === 'ArrowLeft' || key === 'ArrowUp' ? -1 : 1;
    let best = null, least = Infinity;
    for (const each of ops) {
      const box = each.getBoundingClientRect(), dx = box.left - at.left, dy = box.top - at.top;
      if (isRow ? Math.abs(dy) > 1 || dx * sign < 1 : dy * sign < 1) continue;
      const far = isRow ? Math.abs(dx) : Math.abs(dy) * 50 + Math.abs(dx);
      if (far < least) { least = far; best = each; }
    }
    return best;
  };
  ops.forEach((op, index) => {
    op.setAttribute('tabindex', index ? -1 : 0);
    op.addEventListener('pointerenter', () => show(op));
    op.addEventListener('focus', () => show(op));
    op.addEventListener('keydown', event => {
      const next = event.key.startsWith('Arrow') && near(op, event.key);
      if (next) { event.preventDefault(); next.focus(); show(next); }
      if (event.key === 'Escape') { op.blur(); clear(); }
    });
    op.addEventListener('blur', clear);
  });
  svg.addEventListener('pointerleave', clear);
})();
"""


_HOW = (
    "Point at an operation, or reach the charts with Tab and walk with the arrow keys, to follow its "
    "micro-batch through the stages; Escape lets go."
)


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What a page says around its charts."""

    lead: str
    """A line below the title."""
    figures: Sequence[Figure]
    note: str
    """A sentence below the charts."""
    lists: Mapping[str, Sequence[str]] = {}
    """Under each heading, its lines."""


def draw_page(problem: Problem, plan: Plan, panels: Sequence[Panel]) -> str:
    """Return the page of a plan as HTML; its own problem differs from the one given if roles have changed."""
    words = Words(
        lead=f"{say_hit(problem)}; {plan.mode} plan",
        figures=summarize(plan),
        note="Times are in the unit of the costs.",
        lists=say_changes(plan, _MAX_LINES),
    )
    return make_page(problem, panels, words)


def make_page(problem: Problem, panels: Sequence[Panel], words: Words) -> str:
    """Return a page of charts: the shape of the job, figures, charts, and lists of lines."""
    title = f"{problem.dp} pipelines x {problem.pp} stages x {problem.microbatches} micro-batches"
    chart = draw(panels)
    body = [
        f"<h1>{title}</h1>",
        f'<p class="lead">{escape(words.lead)}</p>',
        f"<dl>{''.join(map(_card, words.figures))}</dl>",
        f'<div class="chart" tabindex="0" role="region" aria-label="Gantt charts">{chart}</div>',
        f'<p class="how">{_HOW if "<title>" in chart else ""} {escape(words.note)}</p>',
        *[_list(heading, lines) for heading, lines in words.lists.items()],
        '<div id="told" role="status"></div>',
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Holdfast plan: {title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + f"\n</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def _card(figure: Figure) -> str:
    name, value, remark = (escape(text) for text in (figure.name, figure.value, figure.remark))
    return f"<div><dt>{name}</dt><dd><b>{value}</b><span>{remark}</span></dd></div>"


def _list(heading: str, lines: Sequence[str]) -> str:
    shown = [f"<li>{escape(line)}</li>" for line in lines[:_MAX_LINES]]
    more = [f"<li>and {len(lines) - _MAX_LINES:,} more</li>"] * (len(lines) > _MAX_LINES)
    return f"<h2>{escape(heading.capitalize())}</h2>\n<ul>{''.join(shown + more)}</ul>"
