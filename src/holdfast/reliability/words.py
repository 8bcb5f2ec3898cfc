"""Words of schedulers and of public traces for the states of attempts and of nodes, in ours."""

from __future__ import annotations

import re

import polars as pl

from holdfast.reliability.cells import NOTHING
from holdfast.reliability.tables import STATES

_CODES = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "RUNNING",
    "CG": "RUNNING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "TO": "TIMEOUT",
}
_ALSO = {
    # Slurm's passing states.
    "COMPLETING": "RUNNING",
    "CONFIGURING": "RUNNING",
    "POWER_UP_NODE": "RUNNING",
    "SIGNALING": "RUNNING",
    "STAGE_OUT": "RUNNING",
    "STOPPED": "SUSPENDED",
    "REQUEUE_FED": "PENDING",
    "REQUEUE_HOLD": "PENDING",
    "RESV_DEL_HOLD": "PENDING",
    "SPECIAL_EXIT": "PENDING",
    "LAUNCH_FAILED": "BOOT_FAIL",
    "RECONFIG_FAIL": "BOOT_FAIL",
    # Other schedulers and traces.
    "CANCELED": "CANCELLED",
    "KILLED": "CANCELLED",
    "PASS": "COMPLETED",
    "PASSED": "COMPLETED",
    "SUCCEEDED": "COMPLETED",
    "SUCCESS": "COMPLETED",
    "FAIL": "FAILED",
    "OOM_KILLED": "OUT_OF_MEMORY",
}
_WORD = re.compile(r"\s*([A-Za-z_]+)(\+?)")
_LEAST_PREFIX = 4


def state_of(text: str) -> str | None:
    """Return the state that is meant by ``CANCELLED by 123``, ``OUT_OF_ME+`` or ``NF``, or None."""
    match = _WORD.match(text)
    if match is None:
        return None
    word = match[1].upper()
    if word in STATES:
        return word
    found = _CODES.get(word) or _ALSO.get(word)
    if found is None and match[2] and len(word) >= _LEAST_PREFIX:
        return next((state for state in STATES if state.startswith(word)), None)
    return found


def states(cells: pl.DataFrame) -> list[pl.Expr]:
    """Return how to read the column ``state``: as ``state_read``, and itself without words for nothing."""
    words = [word for word in cells["state"].unique(maintain_order=True).to_list() if word is not None]
    said = [word for word in words if word.strip() not in NOTHING]
    nothing = [word for word in words if word.strip() in NOTHING]
    state = pl.col("state").replace_strict(
        said, [state_of(word) for word in said], default=None, return_dtype=pl.Enum(STATES)
    )
    read = state.alias("state_read")
    if not nothing:
        return [read]
    return [read, pl.when(pl.col("state").is_in(nothing).not_()).then(pl.col("state"))]


# --- of nodes ---------------------------------------------------------------------------------

_NODE_STATES = {
    # The worst comes first: of "IDLE+DRAIN" the second counts.
    "critical": ("DOWN", "FAIL", "ERROR", "INVAL", "NOT_RESPONDING"),
    "warning": (
        "DRAIN",
        "MAINT",
        "REBOOT",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "FUTURE",
        "PERFCTRS",
    ),
    "ok": ("IDLE", "ALLOCATED", "MIXED", "COMPLETING", "RESERVED", "PLANNED", "RESUME", "UP", "BLOCKED"),
}
_NODE_ALSO = {
    "ALLOC": "ALLOCATED",
    "BOOT": "POWERING_UP",
    "COMP": "COMPLETING",
    "DRAINED": "DRAIN",
    "DRAINING": "DRAIN",
    "DRNG": "DRAIN",
    "FAILED": "FAIL",
    "FAILING": "FAIL",
    "FAILG": "FAIL",
    "FUTR": "FUTURE",
    "INVALID_REG": "INVAL",
    "MIX": "MIXED",
    "NO_RESPOND": "NOT_RESPONDING",
    "PLND": "PLANNED",
    "POWER_DOWN": "POWERING_DOWN",
    "POWER_UP": "POWERING_UP",
    "POW_DN": "POWERED_DOWN",
    "POW_UP": "POWERING_UP",
    "RESV": "RESERVED",
}


def node_state_of(text: str) -> tuple[str, str]:
    """Return the worst state in ``DOWN*+DRAIN`` and its severity; what is not known is ``unknown``."""
    words = [word.strip("*~#!%$@^- ").upper() for word in text.replace(",", "+").split("+")]
    meant = [_NODE_ALSO.get(word, word) for word in words if word]
    for severity, order in _NODE_STATES.items():
        for state in order:
            if state in meant:
                return state, severity
    return (meant[0] if meant else ""), "unknown"
