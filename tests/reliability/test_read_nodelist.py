"""Lists of nodes: what they name, and what is none."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.reliability.nodelist import MOST_NODES, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[001-004,007],login1", ["gpu001", "gpu002", "gpu003", "gpu004", "gpu007", "login1"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[098-101]x", ["n098x", "n099x", "n100x", "n101x"]),
        ("rack[1-2]node[01-02]", ["rack1node01", "rack1node02", "rack2node01", "rack2node02"]),
        (" a,b ", ["a", "b"]),
        ("None assigned", []),
        ("(null)", []),
        ("", []),
    ],
)
def test_lists_are_expanded_in_their_order(text: str, names: list[str]) -> None:
    """Numbers stay as wide as they are written, and the last bracket counts fastest."""
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gpu[1-2", "not closed"),
        ("gpu1-2]", "do not match"),
        ("gpu[[1-2]]", "do not match"),
        ("gpu[2-1]", "ends before it begins"),
        ("gpu[a-b]", "no range"),
        ("gpu[]", "no range"),
        ("gpu[1-2,]", "no range"),
        ("a,,b", "no name"),
        ("two words", "no name"),
    ],
)
def test_what_is_no_list_is_told(text: str, why: str) -> None:
    """The reason names the part that is wrong."""
    with pytest.raises(ValueError, match=why):
        expand(text)


@pytest.mark.parametrize("text", ["n[0-1000000000]", "n[0-999][0-999]", ",".join(["n[1-99999]"] * 3)])
def test_a_list_without_measure_is_refused_before_it_fills_the_memory(text: str) -> None:
    """However the number comes about, no more than a cluster's worth of names is made."""
    with pytest.raises(ValueError, match=f"more than {MOST_NODES}|more than 1 nodes"):
        expand(text)


@given(st.text(alphabet="ab01[]-, ", max_size=30))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    """Nothing else is raised, and no name has a bracket or a comma in it."""
    try:
        names = expand(text, most=1000)
    except ValueError:
        return
    assert len(names) <= 1000
    assert all(name and not re.search(r"[\[\],\s]", name) for name in names)
