"""How pages look: paper, ink, headings and cards with figures, in the reader's light or dark."""

from __future__ import annotations

BASE = """
:root{color-scheme:light dark;--paper:#fff;--back:#f6f8fa;--ink:#1f2328;--soft:#59636e;--line:#d8dee4;
--mark:#0969da}
@media(prefers-color-scheme:dark){:root{--paper:#15191e;--back:#0d1117;--ink:#e6edf3;--soft:#9aa5b1;
--line:#353c45;--mark:#58a6ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.5 system-ui,-apple-system,sans-serif}
main{max-width:1240px;margin:0 auto;padding:24px 16px 72px}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 4px}
h2{font-size:1.1rem;margin:24px 0 6px}
.lead{color:var(--soft);margin:0 0 16px}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:10px;margin:0 0 16px}
dl div{background:var(--paper);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
dt,dd span,.how{color:var(--soft);font-size:.85rem}
dd{margin:0}
dd b{display:block;font-size:1.6rem;line-height:1.2;font-weight:600;font-variant-numeric:tabular-nums}
"""
