"""Where the time of a run went."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.serve.report.runfiles import read_files
from holdfast.serve.report.tale import Times, make_tale
from holdfast.values import AttemptEnded, JobHung, Record, StepSeen
from runstories import START, died, eventful, started, tell, write_run


def times_of(folder: Path, records: list[Record]) -> Times:
    """Return where the time of a run with such a log went."""
    return make_tale(read_files(write_run(folder, records)), is_alive=None).times


def test_start_up_standing_still_and_slow_steps_are_told_apart(tmp_path: Path) -> None:
    """Ten seconds to the first step, two without training after a death, thirteen lost to slow steps."""
    records, rows = eventful()
    tale = make_tale(read_files(write_run(tmp_path, records, rows)), is_alive=None)
    assert (tale.times.whole_s, tale.times.startup_s, tale.times.still_s) == (200.0, 10.0, 2.0)
    assert tale.times.slow_s == 13.0
    assert tale.times.ettr == pytest.approx(1 - 25 / 200)
    assert tale.view.step == 189


def test_the_start_up_after_a_death_is_counted_once(tmp_path: Path) -> None:
    """It is part of the time in which nobody trained because of the death."""
    records = [
        tell(0, START),
        tell(1, started(0)),
        tell(5, StepSeen(rank=0, step=0)),
        tell(20, died(0)),
        tell(21, AttemptEnded(reason="failed")),
        tell(22, started(0), attempt=1),
        tell(30, StepSeen(rank=0, step=0), attempt=1),
        tell(50, StepSeen(rank=0, step=3), attempt=1),
    ]
    found = times_of(tmp_path, records)
    assert (found.whole_s, found.startup_s, found.still_s) == (50.0, 5.0, 10.0)


def test_a_hang_counts_from_before_it_was_noticed(tmp_path: Path) -> None:
    """Ten seconds had passed, and ten more until all was stopped."""
    records = [
        tell(0, START),
        tell(1, started(0)),
        tell(5, StepSeen(rank=0, step=0)),
        tell(30, JobHung(lasted_s=10.0, limit_s=8.0, suspects=[])),
        tell(40, AttemptEnded(reason="signal")),
    ]
    assert times_of(tmp_path, records).still_s == 20.0


def test_a_run_without_times_has_no_ettr(tmp_path: Path) -> None:
    """One line is no time, and an empty log none at all."""
    assert times_of(tmp_path / "a", [tell(0, START)]).ettr is None
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "events.jsonl").write_bytes(b"")
    assert make_tale(read_files(tmp_path / "b"), is_alive=None).times.ettr is None


def test_nothing_can_be_more_than_lost() -> None:
    """A controller's bill may be larger than the time that clocks tell."""
    assert Times(whole_s=10.0, startup_s=5.0, still_s=5.0, slow_s=5.0).ettr == 0.0
