"""How often senders are asked to come."""

from __future__ import annotations

import pytest

from holdfast.serve.web.tempo import Tempo


@pytest.mark.parametrize(
    ("senders", "every_s"), [(1, 1.0), (100, 1.0), (200, 2.0), (1000, 10.0), (5000, 10.0)]
)
def test_all_together_send_no_more_than_so_much(senders: int, every_s: float) -> None:
    """But nobody is asked to be silent for so long that he would be missed."""
    tempo = Tempo(clock=lambda: 0.0)
    asked = [tempo.hear("run", node) for node in range(senders)]
    assert asked[-1] == every_s
    assert tempo.hear("run", 0) == every_s, "somebody who is known is not counted twice"


def test_who_is_no_longer_heard_of_does_not_count() -> None:
    """When most jobs have ended, the others may send as often as they like."""
    now_s = 0.0
    tempo = Tempo(clock=lambda: now_s)
    for number in range(500):
        tempo.hear(f"run {number}", 0)
    now_s = 100.0
    assert tempo.hear("run 7", 0) == 1.0
