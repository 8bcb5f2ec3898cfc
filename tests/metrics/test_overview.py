"""What a guard tells of the run of its log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from shownruns import TROUBLES, read_series

from holdfast.guard.eventlog import encode
from holdfast.guard.overview import Overview
from holdfast.telemetry import Summary
from holdfast.values import Stamp

HUNG = "holdfast_run_state{run=run-k,state=hung}"


def _summary(step: int, at: datetime) -> Summary:
    ranks = {str(rank): step for rank in range(4)}
    return Summary(at=at.isoformat(), node=0, attempt=0, steps=ranks, duration_s=dict.fromkeys(ranks, 0.5))


@pytest.mark.parametrize(("step", "is_hung"), [(0, 1.0), (1, 0.0)])
def test_a_hang_is_over_when_a_later_step_is_made(tmp_path: Path, step: int, is_hung: float) -> None:
    """No event tells that."""
    now = datetime.now(UTC)
    stamps = [
        Stamp(schema=1, event_id=str(number), at=now.isoformat(), host="a", node=0, attempt=0)
        for number, _ in enumerate(TROUBLES["hung"])
    ]
    lines = [encode(stamp, event) for stamp, event in zip(stamps, TROUBLES["hung"], strict=True)]
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "events.jsonl").write_bytes(b"".join(lines))
    overview = Overview(run_dir, node=0, key="k")
    overview.refresh(1.0)
    assert read_series(list(overview.collect()))[HUNG] == 1.0
    overview.take(_summary(step, now + timedelta(seconds=30)))
    overview.refresh(2.0)
    assert read_series(list(overview.collect()))[HUNG] == is_hung
