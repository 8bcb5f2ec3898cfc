"""Small tables of attempts and events, written by hand: times are minutes after midnight."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from holdfast.reliability.tables import ATTEMPTS, EVENTS

MIDNIGHT = datetime(2024, 3, 1, tzinfo=UTC)
_TIMES = ("submit", "eligible", "start", "end", "at", "until")


def minute(value: float) -> datetime:
    """Return a moment of the day."""
    return MIDNIGHT + timedelta(minutes=value)


def attempts(*rows: dict[str, Any]) -> pl.DataFrame:
    """Return attempts; what is not said is that of a job of one node with eight GPUs that ran for an hour."""
    usual = {
        "attempt": 1,
        "state": "COMPLETED",
        "start": 0,
        "end": 60,
        "nodes": 1,
        "gpus": 8,
        "node_list": "n1",
    }
    return _table(
        [{"job": str(place)} | usual | row for place, row in enumerate(rows, start=1)], dict(ATTEMPTS)
    )


def events(*rows: dict[str, Any]) -> pl.DataFrame:
    """Return events; what is not said is that of a critical check on n1."""
    usual = {"node": "n1", "at": 0, "kind": "check", "name": "check ib link", "severity": "critical"}
    return _table([usual | row for row in rows], dict(EVENTS))


def _table(rows: Sequence[dict[str, Any]], schema: dict[str, Any]) -> pl.DataFrame:
    timed = [
        {key: minute(value) if key in _TIMES and value is not None else value for key, value in row.items()}
        for row in rows
    ]
    return pl.DataFrame(timed, schema=schema)
