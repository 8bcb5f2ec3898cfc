"""When a failure tells nothing, because others had the machine."""

from __future__ import annotations

import pytest

from disturbed import Counted

BEFORE = "cpu  100 0 50 1000 10 0 5 20 0 0\ncpu0 1 2 3"


@pytest.mark.parametrize(
    ("after", "share"),
    [
        ("cpu  100 0 50 1000 10 0 5 20 0 0", 0.0),
        ("cpu  150 0 75 2000 20 0 5 45 0 0", 0.25),
        ("cpu  200 0 50 1000 10 0 5 20 9 9", 0.0),
    ],
    ids=["nothing passed", "a quarter of what was wanted", "nobody else was there"],
)
def test_what_others_had_is_a_share_of_what_was_wanted(after: str, share: float) -> None:
    """Idle time is nobody's."""
    assert Counted.parse(after).stolen_since(Counted.parse(BEFORE)) == share


def test_the_kernel_counts_it() -> None:
    """Here, too."""
    now = Counted.now()
    assert 0 <= now.stolen <= now.wanted
