"""Traces reduced on a Ray cluster of this machine: the same as without it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.guard.onray import map_on_ray
from holdfast.guard.reducing import Reduced, Unread, reduce_all

TRACE = """{"distributedInfo": {"rank": %d, "world_size": 3}, "traceEvents": [
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 100},
{"ph": "X", "cat": "python_function", "name": "main", "pid": 1, "tid": 1, "ts": 0, "dur": 200,
 "args": {"Python id": 1}}]}"""


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is read."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'holdfast\[ray\]'"):
        map_on_ray("auto")


def test_traces_are_the_same_on_a_cluster(tmp_path: Path) -> None:
    """In order, with those that cannot be read told as such."""
    pytest.importorskip("ray")
    paths = [tmp_path / f"rank_{rank}.json" for rank in range(3)]
    for rank, path in enumerate(paths):
        path.write_text(TRACE % rank if rank != 1 else "{")
    here = list(reduce_all([str(path) for path in paths]))
    there = list(reduce_all([str(path) for path in paths], spread=map_on_ray("local")))
    assert here == there
    assert [type(each) for each in there] == [Reduced, Unread, Reduced]


def test_a_cluster_that_is_not_there_is_one_line() -> None:
    """It names the address."""
    pytest.importorskip("ray")
    with pytest.raises(InputError, match=r"^--ray 127\.0\.0\.1:1: cannot connect: ") as caught:
        list(map_on_ray("127.0.0.1:1")(str, ["a"]))
    assert "\n" not in str(caught.value)
