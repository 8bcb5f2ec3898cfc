"""Pieces of SVG that charts are made of: numbers, texts, boxes, and colours that most eyes can tell apart."""

from __future__ import annotations

import math
from html import escape
from typing import NamedTuple

OP_COLOURS = {"F": "#8fd0f7", "I": "#f0b323", "W": "#2f9e6e", "B": "#b968a8"}
"""Chosen to differ in hue and lightness, so that people with any of the common colour blindnesses tell them
apart too: simulated, the closest two are 24 apart in CIELAB, against 16 for those of Okabe and Ito."""
OP_INK = "#10151a"
"""For words on those colours, in a light and in a dark theme; a contrast of at least 4.8."""

STYLE = (
    "svg{--paper:#fff;--ink:#1f2328;--soft:#59636e;--line:#d8dee4;"
    "--idle:#eff2f5;--bad:#b3261e;--slow:#9a6700}"
    "@media(prefers-color-scheme:dark){svg{--paper:#15191e;--ink:#e6edf3;--soft:#9aa5b1;--line:#353c45;"
    "--idle:#232a31;--bad:#ff8f86;--slow:#e3b341}}"
    "text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:var(--soft)}"
    ".t{font-size:16px;font-weight:600;fill:var(--ink)}.s{font-size:13px}.k{fill:var(--ink)}"
    ".d{font-size:9px}.e{text-anchor:end}.m{text-anchor:middle}"
    ".o{font-size:11px;text-anchor:middle;pointer-events:none}.o.r{font-weight:700}"
    + f".o{{fill:{OP_INK}}}"
    + "".join(f".{kind}{{fill:{colour}}}" for kind, colour in OP_COLOURS.items())
    + ".paper{fill:var(--paper)}.idle{fill:var(--idle)}.grid{stroke:var(--line)}"
    ".r{stroke:var(--ink);stroke-width:1.6}.o.r{stroke:none}.h{fill:url(#h);pointer-events:none}"
    "path.h{stroke:#10151a;stroke-width:.7}"
    ".x{fill:url(#x)}.bad{fill:var(--bad);font-weight:600}.slow{fill:var(--slow);font-weight:600}"
    ".br,.lb{fill:none;stroke:var(--soft);stroke-width:1.5}.lb{stroke:var(--bad);stroke-dasharray:4 3}"
)
PATTERNS = (
    '<pattern id="h" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path d="M0 0v6" stroke="#10151a" stroke-width="2.4" stroke-opacity=".22"/></pattern>'
    '<pattern id="x" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<path d="M0 0v7" stroke="#8b949e" stroke-width="2" stroke-opacity=".55"/></pattern>'
)


def num(value: float) -> str:
    """Return a place in a picture with as few characters as will do."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Return words at a place, the class saying how they look."""
    look = f' class="{kind}"' if kind else ""
    return f'<text{look} x="{num(x)}" y="{num(y)}">{escape(words, quote=False)}</text>'


class Box(NamedTuple):
    """A rectangle: its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    def draw(self, kind: str, *, radius: float = 0, title: str = "") -> str:
        """Return the rectangle, the class saying how it looks; the title shows when it is pointed at."""
        place = " ".join(f'{name}="{num(value)}"' for name, value in self._asdict().items())
        corners = f' rx="{num(radius)}"' if radius else ""
        inside = f"><title>{escape(title, quote=False)}</title></rect>" if title else "/>"
        return f'<rect class="{kind}" {place}{corners}{inside}'


def round_up(value: float) -> float:
    """Return the next of …, 0.1, 0.2, 0.5, 1, 2, 5, 10, …"""
    scale = 10.0 ** math.floor(math.log10(value))
    # The last is for values that rounding has put a hair above ten times the scale.
    return next((digit * scale for digit in (1, 2, 5) if digit * scale >= value), 10 * scale)
