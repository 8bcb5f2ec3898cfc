"""How long a link that carries nothing is taken to be slow."""

from __future__ import annotations

from holdfast.mitigate.aside import Aside
from holdfast.mitigate.condition import SlowLink

LINK = SlowLink(0, 4, 3.0)
OTHER = SlowLink(1, 5, 2.0)


def test_taken_to_be_slow_for_eight_times_as_long_as_it_was() -> None:
    """It was for ten seconds."""
    aside = Aside()
    aside.put((LINK,), since_s=100.0, now_s=110.0)
    assert aside.links(179.0) == (LINK,)
    assert aside.links(180.0) == ()


def test_slow_again_as_soon_as_it_is_used_it_always_was() -> None:
    """So it is left alone for much longer."""
    aside = Aside()
    aside.put((LINK,), since_s=100.0, now_s=110.0)
    aside.take_back(180.0)
    assert aside.links(181.0) == ()
    aside.put((LINK,), since_s=181.0, now_s=190.0)
    assert aside.links(819.0) == (LINK,)
    assert aside.links(820.0) == ()


def test_well_for_long_it_is_a_new_trouble() -> None:
    """For longer than it had been slow."""
    aside = Aside()
    aside.put((LINK,), since_s=100.0, now_s=110.0)
    aside.take_back(180.0)
    aside.put((LINK,), since_s=300.0, now_s=310.0)
    assert aside.links(379.0) == (LINK,)
    assert aside.links(380.0) == ()


def test_a_second_link_joins_the_first() -> None:
    """Until the later of their times."""
    aside = Aside()
    aside.put((LINK,), since_s=100.0, now_s=120.0)
    aside.put((OTHER,), since_s=125.0, now_s=130.0)
    assert aside.links(259.0) == (LINK, OTHER)
    assert aside.links(260.0) == ()
