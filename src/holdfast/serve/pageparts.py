"""Parts that pages are made of: the document, cards with figures, tables, and texts of any kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from holdfast.serve.pagestyle import BASE

STYLE = (
    BASE
    + """
table{border-collapse:collapse;background:var(--paper);border:1px solid var(--line);border-radius:8px;
font-variant-numeric:tabular-nums;margin:0 0 8px;display:block;overflow-x:auto;
width:fit-content;max-width:100%}
th,td{padding:5px 14px;text-align:right;border-top:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:500;border-top:0}
th:first-child,td:first-child,td.w{text-align:left}
.bad{font-weight:700}
.chart{overflow-x:auto;border:1px solid var(--line);border-radius:8px;background:var(--paper);margin:0 0 8px}
.chart:focus-visible{outline:2px solid var(--mark);outline-offset:2px}
.chart svg{display:block;width:100%;min-width:860px;height:auto}
"""
)
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
"""Neither HTML nor a reader can do anything with these; some would even turn the line around."""


def document(title: str, style: str, parts: Iterable[str]) -> str:
    """Return a whole page that needs no other file."""
    text = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"/>'
        f"<title>{escape(title)}</title>\n<style>{style}</style></head>\n<body><main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main></body></html>\n"
    )
    return printable(text)


def printable(text: str) -> str:
    """Return a text that can be written as UTF-8 and shown: what cannot is replaced."""
    return _UNFIT.sub("\ufffd", text.encode(errors="replace").decode())


def cards(figures: Iterable[tuple[str, str, str]]) -> str:
    """Return figures as cards: the name, the figure, and a remark."""
    shown = [
        f"<div><dt>{escape(name)}</dt><dd><b>{escape(value)}</b><span>{escape(said)}</span></dd></div>"
        for name, value, said in figures
    ]
    return f"<dl>{''.join(shown)}</dl>"


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are HTML already."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def chart(drawing: str, label: str) -> str:
    """Return a drawing that can be scrolled where it is wider than the screen."""
    return f'<div class="chart" tabindex="0" role="region" aria-label="{escape(label)}">{drawing}</div>'


def listed(lines: Sequence[str], most: int) -> str:
    """Return lines as a list, the first ones where there are many."""
    shown = [f"<li>{escape(clip(line, 400))}</li>" for line in lines[:most]]
    more = [f"<li>and {len(lines) - most:,} more</li>"] * (len(lines) > most)
    return f"<ul>{''.join(shown + more)}</ul>" if shown else ""


def clip(text: str, most: int) -> str:
    """Return a text of at most so many characters, its end replaced where it is longer."""
    return text if len(text) <= most else text[: most - 1] + "…"
