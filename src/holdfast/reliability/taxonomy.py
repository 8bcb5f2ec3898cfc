"""Symptoms of failures, whose fault each may be, and which row a check, an XID or a state belongs to.

A symptom has several possible causes; it marks the domains (user program, system software, hardware) in which
the fault can be. The rows are those of Table I of "Revisiting Reliability in Large-Scale ML Research
Clusters"; the names of checks are matched by what they say, so that those of other tools find their row too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Row:
    """A symptom, and the domains where its cause can be."""

    name: str
    is_user: bool
    is_software: bool
    is_hardware: bool
    likely: str
    """Causes, in words."""
    blames_node: bool = True
    """Whether the cluster is at fault when a job fails with this; a program can bring about the others."""


OOM, GPU_GONE, GPU_MEMORY = "OOM", "GPU Unavailable", "GPU Memory Errors"
DRIVER, NVLINK, INFINIBAND = "GPU Driver/Firmware Error", "GPU NVLink Error", "Infiniband Link"
MOUNTS, MEMORY, ETHERNET = "Filesystem Mounts", "Main Memory Errors", "Ethlink Errors"
PCIE, NCCL, SERVICES = "PCIe Errors", "NCCL Timeout", "System Services"
OTHER = "Other Node Check"
"""Of a critical check that has no row of its own: a fan, a disk, a clock."""
UNATTRIBUTED = "unattributed"
"""The node stopped answering, and no check says why."""
USER = "user or unknown"
"""The job failed, and no check saw anything."""

ROWS = (
    Row(OOM, True, False, False, "user bug", blames_node=False),
    Row(GPU_GONE, False, True, True, "PCIe error, driver or BIOS, heat"),
    Row(GPU_MEMORY, False, False, True, "thermal noise, cosmic rays, a defect or wear of the memory"),
    Row(DRIVER, False, True, False, "outdated or faulty software, high load"),
    Row(NVLINK, False, False, True, "electrical or material failure, switch"),
    Row(INFINIBAND, False, False, True, "electrical or material failure, switch"),
    Row(MOUNTS, False, True, True, "frontend network, drivers that hang, storage"),
    Row(MEMORY, False, False, True, "wear, thermal noise, cosmic rays"),
    Row(ETHERNET, False, False, True, "electrical or material failure, switch"),
    Row(PCIE, False, False, True, "GPU failure, poor electrical contact"),
    Row(NCCL, True, True, True, "crash or deadlock of the program, failed hardware", blames_node=False),
    Row(SERVICES, True, True, True, "crash of a program, software bugs, network partition"),
    Row(OTHER, False, True, True, "what the check says"),
)

SEVERITY = (
    GPU_MEMORY,
    NVLINK,
    PCIE,
    GPU_GONE,
    MEMORY,
    INFINIBAND,
    ETHERNET,
    DRIVER,
    MOUNTS,
    SERVICES,
    OTHER,
    NCCL,
    OOM,
)
"""The likeliest cause first: what is more severe, then what is more specific."""

XIDS: dict[int, str] = {
    38: DRIVER,
    48: GPU_MEMORY,
    61: DRIVER,
    62: DRIVER,
    63: GPU_MEMORY,
    64: GPU_MEMORY,
    74: NVLINK,
    79: GPU_GONE,
    92: GPU_MEMORY,
    94: GPU_MEMORY,
    95: GPU_MEMORY,
    119: DRIVER,
    120: DRIVER,
    140: GPU_MEMORY,
    143: GPU_GONE,
}
"""Error codes of the GPU driver that have a row; another one that is critical leaves the GPU in doubt."""
HARMLESS_XIDS = frozenset({13, 31, 43, 45, 63, 68, 92, 109})
"""Those that a program brings about, or that need no repair."""

STATE_ROWS = {"OUT_OF_MEMORY": OOM}
"""Of attempts that need no check to be explained."""

_CHECKS = tuple(
    (re.compile(pattern), row)
    for pattern, row in (
        (r"nccl.*(timeout|timed out)|watchdog.*collective", NCCL),
        (r"row.?remap|retired.?page|ecc|hbm|cuda.?memtest|gpu mem", GPU_MEMORY),
        (r"nv.?link|nvswitch", NVLINK),
        (r"critical interrupt|bus fatal|pci serr|\bpci", PCIE),
        (r"uncorrectable|\bdimm|mem(ory)? size|main memory", MEMORY),
        (r"gpu.?num|off the bus|gpu (unavailable|lost|count|missing)|dcgm", GPU_GONE),
        (r"vbios|bios version mismatch|\bgsp\b|gpu driver", DRIVER),
        (r"infiniband|\bib\b|ib.?stat|ib.?link|\bhca\b|ib interfaces", INFINIBAND),
        (r"eth.?link|link flap.*eth|\beth\d|ethernet|eth interface", ETHERNET),
        (r"mount|nfs|fstab|file.?system", MOUNTS),
        (r"service|\bssh|slurm|daemon|d.?state|zombie", SERVICES),
    )
)
_XID = re.compile(r"xid(?: \([^)]*\))?\D{0,12}?(\d+)")
_VAGUE = re.compile(r"ipmi|xid(?!\D*\d)")
"""Checks of which only the text says what they saw."""


def row_of_xid(code: int) -> str | None:
    """Return the row of an XID, or None for one that says nothing of the node."""
    if code in XIDS:
        return XIDS[code]
    if code in HARMLESS_XIDS:
        return None
    return NVLINK if 144 <= code <= 150 else GPU_GONE


def row_of_words(words: str) -> str | None:
    """Return the row that a name of a check, or a reason given for a drain, speaks of."""
    text = re.sub(r"[_\-/]+", " ", words.lower())
    if match := _XID.search(text):
        return row_of_xid(int(match[1]))
    return next((row for pattern, row in _CHECKS if pattern.search(text)), None)


def row_of_event(kind: str, name: str, text: str) -> str | None:
    """Return the row of a critical event, or None if it is no symptom."""
    if kind == "state":  # It is a consequence; but who took the node out may have written why.
        return row_of_words(text)
    if kind not in {"check", "xid"}:
        return None
    found = row_of_words(f"{name} {text}" if _VAGUE.search(name.lower()) else name)
    return found or (OTHER if kind == "check" else None)


OUT = r"^(DRAIN|DOWN|FAIL|MAINT)"
"""States in which a node takes no jobs."""


def symptoms(events: pl.DataFrame) -> pl.DataFrame:
    """Return the events that may explain a failure: node, at, name, row, order of severity.

    Checks and XIDs count if they are critical; of XIDs whose severity nobody told, the code decides. A node
    that went out of service for no reason that has a row comes last, with none.
    """
    state = (pl.col("kind") == "state") & pl.col("name").str.to_uppercase().str.contains(OUT)
    told = pl.col("severity").cast(pl.String).fill_null("unknown")
    doubtful = (pl.col("kind") == "xid") & (told == "unknown") & ~_is_harmless()
    check = pl.col("kind").is_in(["check", "xid"]) & ((told == "critical") | doubtful)
    found = events.filter((state | check) & pl.col("node").is_not_null() & pl.col("at").is_not_null())
    # Texts are looked at only where they decide: there are far fewer names than events.
    text = pl.when(state | pl.col("name").str.to_lowercase().str.contains("ipmi|xid")).then(pl.col("text"))
    keys = found.select(
        "node",
        "at",
        pl.col("kind").cast(pl.String),
        pl.col("name").fill_null(""),
        text.fill_null("").alias("text"),
    )
    known = keys.select("kind", "name", "text").unique(maintain_order=True)
    rows = [row_of_event(*each) for each in known.iter_rows()]
    known = known.with_columns(pl.Series("row", rows, dtype=pl.String))
    joined = keys.join(known, on=["kind", "name", "text"], how="left")
    joined = joined.filter(pl.col("row").is_not_null() | (pl.col("kind") == "state"))
    return joined.select("node", "at", "name", "row", order=_order())


def _is_harmless() -> pl.Expr:
    code = pl.col("name").str.extract(r"(\d+)").cast(pl.Int64, strict=False)
    return code.is_in(sorted(HARMLESS_XIDS)).fill_null(False)


def _order() -> pl.Expr:
    places = {name: place for place, name in enumerate(SEVERITY)}
    return pl.col("row").replace_strict(places, default=len(SEVERITY), return_dtype=pl.UInt8)
