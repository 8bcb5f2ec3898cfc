"""tell_change and tell_suspect: findings in good English."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from holdfast.diagnose.telling import tell_change, tell_probe, tell_suspect
from holdfast.findings import Cause, ChangePoint, Direction, Suspect
from holdfast.values import Probed

CAUSES: tuple[Cause, ...] = get_args(Cause)


def a_change(
    before_s: float, after_s: float, direction: Direction = "slow", is_slow: bool = True
) -> ChangePoint:
    """Return a change at step 50."""
    return ChangePoint(
        step=50,
        detected_step=53,
        before_s=before_s,
        after_s=after_s,
        direction=direction,
        is_slow=is_slow,
        confidence=0.99,
    )


def test_a_rank_is_told_with_its_cause() -> None:
    """Who, where, why, in which line, and how sure that is."""
    suspect = Suspect(
        ranks=[5], hosts=["node-3"], cause="cpu_contention", function="train.py:9 step", confidence=0.87
    )
    assert tell_suspect(suspect) == ("rank 5 on node-3: its CPU is contended, in train.py:9 step (87% sure)")


def test_several_ranks_are_told_as_several() -> None:
    """Their compute, not its."""
    suspect = Suspect(ranks=[1, 2], hosts=["a", "b"], cause="compute", confidence=0.9)
    assert tell_suspect(suspect) == "ranks 1 and 2 on a, b: their compute is slow (90% sure)"


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_has_words_for_one_and_for_several(cause: Cause) -> None:
    """No cause speaks of several ranks as of one, or of one as of several."""
    one = tell_suspect(Suspect(ranks=[4], cause=cause, confidence=0.5))
    several = tell_suspect(Suspect(ranks=[4, 5, 6, 9], cause=cause, confidence=0.5))
    assert one.startswith("rank 4: ")
    assert not re.search(r"\b(they|them|their)\b", one)
    assert several.startswith("ranks 4 to 6 and 9: ")
    assert not re.search(r"\b(it|its|hangs)\b", several)


def test_a_link_is_told_by_its_ends() -> None:
    """It is slow, whoever sits there."""
    suspect = Suspect(kind="link", ranks=[0, 3], link=(0, 3), cause="link", confidence=0.9)
    assert tell_suspect(suspect) == "link 0-3 is slow (90% sure)"


@pytest.mark.parametrize(
    ("before_s", "after_s", "said"),
    [
        (0.2, 0.3, "steps take 1.50x as long since step 50: 300 ms instead of 200 ms"),
        (0.9, 1.35, "steps take 1.50x as long since step 50: 1.35 s instead of 900 ms"),
        (0.9999, 2.0, "steps take 2.00x as long since step 50: 2.00 s instead of 1.00 s"),
        (0.0004, 0.0006, "steps take 1.50x as long since step 50: 0.6 ms instead of 0.4 ms"),
        (0.0252, 0.0504, "steps take 2.00x as long since step 50: 50.4 ms instead of 25.2 ms"),
        (40.0, 60.0, "steps take 1.50x as long since step 50: 60.00 s instead of 40.00 s"),
    ],
)
def test_a_slowdown_is_told_in_fitting_units(before_s: float, after_s: float, said: str) -> None:
    """From microseconds to minutes, and never as 0 ms."""
    assert tell_change(a_change(before_s, after_s)) == said


def test_relief_says_whether_all_is_well() -> None:
    """A little faster is not as fast as before."""
    assert tell_change(a_change(0.3, 0.2, "relief", is_slow=False)) == (
        "steps are as fast as before since step 50: 200 ms instead of 300 ms"
    )
    assert "faster, but still slow" in tell_change(a_change(0.3, 0.25, "relief"))


def test_many_hosts_are_counted() -> None:
    """A slow file system of a thousand hosts is one line, too."""
    hosts = [f"node-{number}" for number in range(1000)]
    suspect = Suspect(ranks=list(range(8000)), hosts=hosts, cause="storage", confidence=0.9)
    assert tell_suspect(suspect) == (
        "ranks 0 to 7999 on node-0, node-1, node-2, node-3 and 996 other hosts: "
        "their storage is slow (90% sure)"
    )
    few = Suspect(ranks=[1], hosts=hosts[:5], cause="storage", confidence=0.9)
    assert "node-0, node-1, node-2, node-3, node-4:" in tell_suspect(few)


@pytest.mark.parametrize(
    ("count", "said"), [(0, "nobody stands out"), (1, "1 stands out"), (2, "2 stand out")]
)
def test_a_probe_is_told_with_its_outcome(count: int, said: str) -> None:
    """How long computing and links took, and how many stand out."""
    suspects = [Suspect(ranks=[rank], confidence=0.9) for rank in range(count)]
    times = {"0": 0.065, "1": 1.26}
    probed = Probed(order="a", ranks=[0, 1, 2], gemm_s=times, suspects=suspects, silent=["rank 2 was busy"])
    assert tell_probe(probed) == f"probed ranks 0 to 2, compute 65 ms to 1.26 s: {said}; rank 2 was busy"
