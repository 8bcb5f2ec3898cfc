"""Ids, lists of nodes and spans of time as numbers: the same answers as by names, one by one."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from holdfast.reliability.jobkeys import count_jobs, is_repeated, job_keys, plain_numbers, sum_by_job
from holdfast.reliability.meeting import near
from holdfast.reliability.nodelist import expand
from holdfast.reliability.nodesets import NodeSets, find_places

_START = datetime(2025, 1, 1, tzinfo=UTC)
_IDS = {
    "numbers in order": ["1", "2", "2", "3", "10", "10", "10"],
    "numbers in no order": ["10", "2", "1", "2", "10", "3", "10"],
    "tasks of arrays": ["5", "5_1", "5_1", "5_[2-9]", "5+0"],
    "zeros in front": ["7", "07", "007", "7"],
    "signs": ["+7", "7", "-7"],
    "space": ["7 ", " 7", "7"],
    "fractions": ["1.0", "1", "1e0", "1_0"],
    "too large": [str(2**64), str(2**64 + 1), str(2**64)],
    "none": ["1", None, None],
    "nothing at all": [],
}


@pytest.mark.parametrize("ids", _IDS.values(), ids=_IDS)
def test_keys_are_equal_where_ids_are(ids: list[str | None]) -> None:
    """Counts, repeats and sums by key are those by id, whatever the ids look like."""
    keys = job_keys(pl.Series("job", ids, dtype=pl.String))
    values = np.arange(len(ids)) + 1
    assert count_jobs(keys) == len(set(ids))
    assert is_repeated(keys).tolist() == [ids.count(each) > 1 for each in ids]
    sums = [sum(int(v) for v, other in zip(values, ids, strict=True) if other == each) for each in ids]
    assert sum_by_job(keys, values).tolist() == sums


@pytest.mark.parametrize("odd", ["07", "0", "+7", "-7", "7 ", " 7", "1.0", "1e3", "1_0", "7_1", "", "\u0667"])
def test_only_ids_that_are_one_number_each_are_plain(odd: str) -> None:
    """One id that is written otherwise makes all of them text."""
    assert plain_numbers(pl.Series("job", ["12", odd])) is None


_LISTS = (
    "n01",
    "n[01-04]",
    "n[1-12]",
    "n[08-11]",
    "m[1-2]",
    "n[01,03]",
    "n[01-02],m1",
    "r[1-2]n[1-2]",
    "n[3-1]",
    "n[1-",
    "n[000000001-000000002]",
    "n[1-999999999]",
    "n[1-2]x",
    "None assigned",
    "",
)


@pytest.mark.parametrize("as_categories", [False, True])
def test_sets_of_nodes_are_what_their_lists_say(as_categories: bool) -> None:
    """Every list gives the nodes that it names, in its order, and their places among those that are known."""
    known = [*(f"n{each:02d}" for each in range(1, 9)), "n1", "n10", "m1", "r1n2", "n2x"]
    lists = pl.Series([random.Random(0).choice(_LISTS) for _ in range(200)] + list(_LISTS))
    given = lists.cast(pl.Categorical) if as_categories else lists
    sets = NodeSets(given)
    spans, names = sets.nodes(0, len(lists))
    found: list[list[str]] = [[] for _ in lists]
    for span, name in zip(spans.tolist(), sets.names[names], strict=True):
        found[span].append(name)
    assert found == [_names(text) for text in lists]
    assert find_places(sets.names, pl.Series(known)).tolist() == [
        known.index(name) if name in known else -1 for name in sets.names
    ]


def _names(text: str) -> list[str]:
    try:
        return expand(text)
    except ValueError:
        return []


@pytest.mark.parametrize("days", [0, 1, 365 * 400])
@pytest.mark.parametrize("seed", range(3))
def test_all_that_meet_are_near_and_few_others(seed: int, days: int) -> None:
    """No span misses what was seen on its nodes; what was seen a piece of time away is no reason."""
    rng = random.Random(seed)

    def moment() -> datetime:
        return _START + timedelta(seconds=rng.randrange(86_400), days=rng.choice([0, days]))

    seen = pl.DataFrame([{"node": f"n{rng.randrange(1, 13):02d}", "at": moment()} for _ in range(40)])
    starts = [moment() for _ in range(400)]
    spans = pl.DataFrame(
        {
            "node_list": [rng.choice([*_LISTS, None]) for _ in starts],
            "_from": starts,
            "_to": [start + timedelta(seconds=rng.randrange(900)) for start in starts],
        }
    ).with_row_index("_row")
    found = near(spans, seen)
    exact = found.join(seen, on="node").filter(pl.col("at").is_between("_from", "_to"))
    asked = {
        (row, node)
        for row, text, first, last in spans.iter_rows()
        for node, at in seen.iter_rows()
        if text is not None and node in _names(text) and first <= at <= last
    }
    assert set(exact.select("_row", "node").iter_rows()) == asked, seed
    if days < 365:
        slack = timedelta(seconds=68)
        wide = pl.col("at").is_between(pl.col("_from") - slack, pl.col("_to") + slack)
        loose = found.join(seen, on="node").filter(wide)
        assert set(found.select("_row", "node").iter_rows()) == set(loose.select("_row", "node").iter_rows())


def test_where_nothing_was_seen_nothing_is_near() -> None:
    """Empty tables on either side have nothing in common."""
    spans = pl.DataFrame({"node_list": ["n1"], "_from": [_START], "_to": [_START]})
    seen = pl.DataFrame({"node": ["n1"], "at": [_START]})
    assert near(spans, seen)["node"].to_list() == ["n1"]
    assert near(spans.clear(), seen).is_empty()
    assert near(spans, seen.clear()).is_empty()
