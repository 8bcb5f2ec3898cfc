"""Which line of code a slow rank spends its time in, and the others do not."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath

from holdfast.diagnose.causes import Sign
from holdfast.findings import Cause
from holdfast.telemetry import Lines, LineSeen

_LEAST_SHARE = 0.15
"""Of the time, beyond what the others spend in a line."""
_LEAST_SAMPLES = 20
_MANY = 50
_WORDS: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    ("garbage_collection", re.compile(r"\bgc\.collect\b")),
    (
        "storage",
        re.compile(
            r"(?<!stdout\.)(?<!stderr\.)\b("
            r"p?readv?|read(into|lines?|_bytes|_text|all|_csv|_parquet|_json)|imread|open|urlopen|download"
            r"|p?writev?|write(lines|_bytes|_text|_record)|fsync|memmap|fromfile|tofile|loadtxt|savetxt"
            r"|get_object|put_object|load_file|save_file|(torch|np)\.(load|save)|np\.savez(_compressed)?"
            r"|shutil\.copy\w*|copyfileobj"
            r")\((?!handle, remaining|self\._handle\b)"  # Those are the pipes between processes.
        ),
    ),
    (
        "host_memory",
        re.compile(
            r"\.(copy_|clone|contiguous|pin_memory|copy|tobytes)\(|\b(memcpy|memmove|copyto|deepcopy)\b"
            r"|\b(bytearray|(np|numpy|torch)\.(empty|zeros|ones|full))\("
        ),
    ),
    # Off the processor of its own will: nobody kept it from running.
    ("compute", re.compile(r"\bsleep\(")),
)


def find_lines(told: Mapping[int, Lines]) -> dict[int, list[Sign]]:
    """Return, by rank, the lines that it was in and its peers were not, the most time-consuming first."""
    shares = {rank: _shares(lines) for rank, lines in told.items() if lines.samples >= _LEAST_SAMPLES}
    found: dict[int, list[Sign]] = {}
    everybody = list(shares.values())
    for rank, mine in shares.items():
        # Of many, some will do, and one's own does not move their middle.
        others = everybody[:: len(everybody) // _MANY] if len(everybody) >= 2 * _MANY else everybody
        others = [theirs for theirs in others if theirs is not mine]
        if others:
            found[rank] = _stand_out(mine, others, told[rank])
    return found


_Key = tuple[str, int]


def _shares(lines: Lines) -> dict[_Key, float]:
    counts: Counter[_Key] = Counter()
    for seen in lines.lines:
        counts[seen.file, seen.line] += seen.count
    return {key: count / lines.samples for key, count in counts.items()}


def _stand_out(mine: Mapping[_Key, float], others: list[dict[_Key, float]], lines: Lines) -> list[Sign]:
    signs = []
    for key, share in mine.items():
        if share < _LEAST_SHARE:
            continue
        usual = statistics.median(theirs.get(key, 0.0) for theirs in others)
        if share - usual >= _LEAST_SHARE:
            signs.append(_sign(key, share, usual, lines))
    return sorted(signs, key=lambda sign: -sign.strength)


def _sign(key: _Key, share: float, usual: float, lines: Lines) -> Sign:
    here = [seen for seen in lines.lines if (seen.file, seen.line) == key]
    most = max(here, key=lambda seen: seen.count)
    where = f"{PurePath(most.file).name}:{most.line} {most.function}"
    said = f"it is in {where} for {share:.0%} of the time, the others for {usual:.0%}"
    if most.source:
        said += f": {most.source}"
    return Sign(cause=_cause(most), strength=share - usual, evidence=said, function=where)


def _cause(seen: LineSeen) -> Cause:
    for cause, pattern in _WORDS:
        if any(pattern.search(text) for text in (seen.source, *seen.inner)):
            return cause
    return "unknown"
