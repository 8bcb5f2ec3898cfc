"""A report as one HTML file: no script, nothing to load, light or dark as the reader has it, fit to print."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from holdfast.serve.pageparts import STYLE, cards, chart, clip, document, listed
from holdfast.serve.report import picture
from holdfast.serve.report.blocks import (
    Block,
    Cards,
    Code,
    Frame,
    Grid,
    Heading,
    Items,
    Notice,
    Paragraph,
    Picture,
)

_MOST_CELL = 400
_MOST_LINE = 400
_MOST_ITEMS = 60
MARK = '<meta name="generator" content="holdfast report"/>'
"""By which a file is known to be a report, and may be written anew."""
_PAGE_STYLE = (
    STYLE
    + picture.STYLE
    + """
main{max-width:1060px}
h1{font-size:1.6rem;overflow-wrap:anywhere}
h2{margin:32px 0 10px}
p{margin:6px 0}
p.small{color:var(--soft);font-size:.9rem}
dl{grid-template-columns:repeat(auto-fit,minmax(140px,1fr))}
dd b{font-size:1.35rem;overflow-wrap:anywhere}
section{background:var(--paper);border:1px solid var(--line);border-left:5px solid var(--side);
border-radius:8px;padding:14px 18px;margin:0 0 14px;overflow-wrap:anywhere;break-inside:avoid-page}
section h3,.warn h3{font-size:1.05rem;margin:0 0 8px}
h4{font-size:.9rem;margin:12px 0 2px;color:var(--soft);font-weight:600}
.slow{--side:#d58a00}.death,.hang{--side:#b3261e}.calm{--side:var(--mark)}
ul{margin:2px 0;padding-left:1.2em}
table{font-size:.88rem;margin:8px 0}
td,th{text-align:left;padding:4px 12px;vertical-align:top}
td:last-child{white-space:normal;min-width:14rem;overflow-wrap:anywhere}
table.numbers :is(td,th):not(:first-child){text-align:right;min-width:0;white-space:nowrap}
table.numbers td:first-child{white-space:normal;min-width:9rem}
table.numbers tr:last-child td{font-weight:600}
section table{border-radius:6px}
.next{background:var(--back);border-radius:6px;padding:8px 12px;margin:8px 0 0}
.warn{border:1px solid var(--line);border-left:5px solid var(--soft);border-radius:8px;padding:10px 16px;
margin:0 0 12px;background:var(--paper);overflow-wrap:anywhere}
pre{background:var(--back);border:1px solid var(--line);border-radius:6px;padding:8px 12px;margin:4px 0;
font:.8rem/1.45 ui-monospace,'SF Mono',Menlo,Consolas,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
.chart svg{min-width:640px}
.how{margin:4px 0}
@media(max-width:600px){main{padding:16px 10px 48px}section{padding:10px 12px}h1{font-size:1.25rem}
td,th{padding:4px 8px}table:not(.numbers){width:auto}table:not(.numbers) thead{display:none}
table:not(.numbers) tr{display:flex;flex-wrap:wrap;gap:0 12px;padding:5px 10px;
border-top:1px solid var(--line)}
table:not(.numbers) td{border:0;padding:0;color:var(--soft)}
table:not(.numbers) td:last-child{flex-basis:100%;min-width:0;color:var(--ink)}}
@media print{body{background:#fff;font-size:11pt}main{max-width:none;padding:0}h2{break-after:avoid}
tr,pre{break-inside:avoid}table{display:table;width:100%}.chart svg{min-width:0}}
"""
)


def to_html(title: str, blocks: Iterable[Block]) -> str:
    """Return the page."""
    parts = [f"<h1>{escape(clip(title, 300))}</h1>", *map(_draw, blocks)]
    page = document(title, _PAGE_STYLE, parts)
    return page.replace('<meta charset="utf-8"/>', f'<meta charset="utf-8"/>{MARK}', 1)


def _draw(block: Block) -> str:
    match block:
        case Heading(text=text):
            return f"<h2>{escape(text)}</h2>"
        case Paragraph(text=text, kind="next"):
            return f'<p class="next"><b>Next step.</b> {escape(text)}</p>'
        case Paragraph(text=text, kind=kind):
            look = "" if kind == "plain" else f' class="{kind}"'
            return f"<p{look}>{escape(clip(text, 2000))}</p>"
        case Cards(figures=figures):
            return cards(figures)
        case Grid():
            return _grid(block)
        case Items(title=title, lines=lines):
            head = f"<h4>{escape(title)}</h4>" if title else ""
            return head + listed(lines, _MOST_ITEMS)
        case Notice(title=title, lines=lines):
            return f'<div class="warn"><h3>{escape(title)}</h3>{listed(lines, _MOST_ITEMS)}</div>'
        case Code(title=title, lines=lines):
            body = escape("\n".join(clip(line, _MOST_LINE) for line in lines))
            return f"<h4>{escape(title)}</h4><pre>{body}</pre>"
        case Picture(svg=svg, label=label, words=words):
            return f'{chart(svg, label)}<p class="how">{escape(words)}</p>'
        case Frame(title=title, kind=kind, parts=parts):
            inside = "\n".join(map(_draw, parts))
            return f'<section class="{kind}"><h3>{escape(clip(title, 300))}</h3>\n{inside}</section>'


def _grid(grid: Grid) -> str:
    look = ' class="numbers"' if grid.numbers else ""
    head = "".join(f"<th>{escape(name)}</th>" for name in grid.names)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(clip(cell, _MOST_CELL))}</td>' for cell in row)}</tr>\n"
        for row in grid.rows
    )
    return f"<table{look}><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>"
