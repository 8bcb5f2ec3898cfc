"""How long a link that carries nothing is taken to be slow."""

from __future__ import annotations

from holdfast.mitigate.aside import Aside
from holdfast.mitigate.condition import SlowLink

LINK = SlowLink(0, 4, 3.0)
OTHER = SlowLink(1, 5, 2.0)


def test_taken_to_be_slow_for_ten_times_what_it_cost() -> None:
    """And twice as long the next time."""
    aside = Aside()
    aside.put((LINK,), 100.0, 4.0)
    assert aside.links(139.0) == (LINK,)
    assert aside.links(140.0) == ()
    aside.put((LINK,), 200.0, 4.0)
    assert aside.links(279.0) == (LINK,)
    assert aside.links(280.0) == ()


def test_back_in_use_it_shows_how_it_is() -> None:
    """Nothing is taken to be slow that can be seen."""
    aside = Aside()
    aside.put((LINK,), 100.0, 4.0)
    aside.take_back()
    assert aside.links(101.0) == ()


def test_a_second_link_joins_the_first() -> None:
    """Until the later of their times."""
    aside = Aside()
    aside.put((LINK,), 100.0, 10.0)
    aside.put((OTHER,), 110.0, 1.0)
    assert aside.links(199.0) == (LINK, OTHER)
    assert aside.links(200.0) == ()
