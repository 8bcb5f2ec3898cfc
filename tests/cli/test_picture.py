"""The picture of a run is an SVG that stands alone."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from holdfast.cli.picture import draw
from holdfast.cli.words import phrase
from holdfast.values import AttemptEnded, Death, Fault, FaultInjected, Record, Stamp, Step

STAMP = Stamp(schema=1, event_id="x", at="2026-11-15T19:40:12+00:00", host="a", node=0, attempt=0)
DEATH = Death(rank=1, local_rank=1, node=0, host="a", pid=1, exit_code=137, signal="SIGKILL", seen_s=3.0)
FAULT = Fault(kind="slow_link", target=(0, 1), at_step=5, for_steps=5, severity=3.0)
STEPS = [
    Step(
        rank=0,
        step=number % 20,
        ended_s=number * 0.1 + (5 if number >= 20 else 0),
        duration_s=0.1,
        attempt=number // 20,
    )
    for number in range(40)
]
RECORDS = [
    Record(stamp=STAMP, event=FaultInjected(fault=FAULT, step=5, via="pacing")),
    Record(stamp=STAMP, event=AttemptEnded(reason="failed", first=DEATH)),
]


def test_faults_are_bands_deaths_are_lines_and_attempts_are_curves() -> None:
    """Each is drawn once, inside the frame, with its name in words."""
    root = ET.fromstring(draw(STEPS, RECORDS))
    names = [element.tag.partition("}")[2] + "." + element.get("class", "") for element in root.iter()]
    assert names.count("rect.slow") == names.count("rect.pause") == names.count("line.dead") == 1
    assert names.count("polyline.l") == 2
    words = "".join(root.itertext())
    assert "slow_link of link 0-1 x3" in words
    assert "rank 1 killed, all restarted" in words
    assert "emulated" in words
    assert "href" not in draw(STEPS, RECORDS)


def test_a_run_without_steps_cannot_be_drawn() -> None:
    """It says so instead of drawing an empty frame."""
    with pytest.raises(ValueError, match="no steps"):
        draw([], RECORDS)


def test_events_are_told_in_words() -> None:
    """The same words for the screen and for the pipe."""
    assert [phrase(record.event) for record in RECORDS] == [
        "fault: slow_link of link 0-1 x3, from step 5",
        "all workers ended because rank 1 died first",
    ]
