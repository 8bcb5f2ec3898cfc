"""Traces of torch's profiler: read in pieces of any size, whole or refused, and real ones too."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import InputError
from holdfast.observe import kineto
from holdfast.observe.kineto import Trace, parse_trace, read_trace


def event(name: str, category: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    """One event of the kind that counts."""
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 2, "ts": ts, "dur": dur, "args": args}


def call(name: str, number: int, parent: int | None, ts: float, dur: float) -> dict[str, Any]:
    """A call of a Python function."""
    return event(name, "python_function", ts, dur, **{"Python id": number, "Python parent id": parent})


EVENTS = [
    {
        "ph": "M",
        "name": "process_name",
        "pid": 1,
        "tid": 0,
        "ts": 0,
        "args": {"name": "python", "labels": "CPU"},
    },
    event("aten::addmm", "cpu_op", 10, 5, **{"Input Dims": [[1, 2], [3]], "Concrete Inputs": ["}, {", "]"]}),
    event("gloo:all_reduce", "user_annotation", 16, 4),
    event("Optimizer.step#SGD.step", "user_annotation", 20, 4),
    call("train.py(1): main", 1, None, 0, 100),
    call("train.py(9): load", 2, 1, 1, 8),
    call("train.py(9): load", 3, 1, 30, 8),
    call("os.py(3): read", 4, 3, 31, 5),
    event("ncclDevKernel_AllReduce", "kernel", 50, 5),
    event("sgemm", "kernel", 51, 2),
    event("Memcpy HtoD", "gpu_memcpy", 60, 1),
    event("cudaLaunchKernel", "cuda_runtime", 49, 1),
]
HEAD = {
    "schemaVersion": 1,
    "distributedInfo": {
        "rank": 3,
        "world_size": 4,
        "pg_config": [{"pg_name": "0", "pg_desc": "mesh_dp", "ranks": [0, 1, 2, 3]}],
    },
}


def parse(text: str | bytes) -> Trace:
    """Read a text as a trace."""
    return parse_trace(io.BytesIO(text.encode() if isinstance(text, str) else text), "trace.json")


@pytest.mark.parametrize("piece", [1, 7, 64, 200, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("is_head_last", [False, True])
def test_a_trace_is_the_same_in_pieces_of_any_size(
    piece: int, indent: int | None, is_head_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brackets within texts and lists do not fool the cutting."""
    monkeypatch.setattr(kineto, "PIECE", piece)
    document = (
        {"traceEvents": EVENTS, **HEAD} if is_head_last else {**HEAD, "traceEvents": EVENTS, "traceName": "x"}
    )
    found = parse(json.dumps(document, indent=indent))
    assert (found.rank, found.world_size, found.groups) == (3, 4, [("mesh_dp", [0, 1, 2, 3])])
    assert (found.events, found.broken, len(found.function)) == (12, 0, 9)
    names = [(found.functions[at].name, found.functions[at].kind) for at in found.function.tolist()]
    assert names == [
        ("aten::addmm", "compute"),
        ("gloo:all_reduce", "collective"),
        ("train.py(1): main", "python"),
        ("train.py(9): load", "python"),
        ("train.py(9): load", "python"),
        ("os.py(3): read", "python"),
        ("ncclDevKernel_AllReduce", "collective"),
        ("sgemm", "compute"),
        ("Memcpy HtoD", "memory"),
    ]
    assert [mark.name for mark in found.marks] == ["Optimizer.step#SGD.step"]


def test_a_python_function_is_known_by_its_callers() -> None:
    """The same function by the same way is one; what it is called by is told of functions and of events."""
    found = parse(json.dumps({**HEAD, "traceEvents": EVENTS}))
    main, first, second, read = found.function[2:6].tolist()
    assert first == second
    assert found.functions[read].caller == first
    assert found.functions[first].caller == main
    assert found.caller.tolist() == [-1, -1, -1, 2, 2, 4, -1, -1, -1]


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    """As Chrome also takes it; compressed, too."""
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(EVENTS).encode()))
    found = read_trace(path)
    assert (found.rank, found.events) == (None, 12)


def test_events_that_cannot_be_are_counted() -> None:
    """A negative duration, none, and a time that is a word; the others are kept."""
    odd = [
        event("a", "cpu_op", 1, -1),
        {**event("b", "cpu_op", 1, 1), "dur": None},
        {**event("c", "cpu_op", 1, 1), "ts": "soon"},
        event("d", "cpu_op", 1, 1),
    ]
    found = parse(json.dumps({"traceEvents": odd}))
    assert (found.broken, [each.name for each in found.functions]) == (3, ["d"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is empty"),
        (b"   \n", "is empty"),
        (b"hello", "has no traceEvents"),
        (b'{"a": 1}', "has no traceEvents"),
        (b'{"traceEvents": []}', "has no events"),
        (b"[]", "has no events"),
        (b'{"traceEvents": [{"ph": "X"', "ends in the middle"),
        (b'{"traceEvents": [{"ph": "X"}, {"ph"', "ends in the middle"),
        (b"[{]", "ends in the middle"),
        (b"\x00\x01\x02", "has no traceEvents"),
    ],
)
def test_what_is_no_trace_is_one_line(text: bytes, said: str) -> None:
    """With the file's name."""
    with pytest.raises(InputError, match=f"trace.json: {said}"):
        parse(text)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("piece", [64, 1 << 20])
def test_a_cut_trace_is_refused_wherever_it_was_cut(
    share: float, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not be taken for a short one."""
    monkeypatch.setattr(kineto, "PIECE", piece)
    text = json.dumps({**HEAD, "traceEvents": EVENTS})
    with pytest.raises(InputError):
        parse(text[: int(share * len(text))])


def test_a_broken_archive_is_one_line(tmp_path: Path) -> None:
    """Cut in the middle, or no archive at all behind its first bytes."""
    whole = gzip.compress(json.dumps(EVENTS * 100).encode())
    for data in (whole[: len(whole) // 2], b"\x1f\x8b" + b"x" * 50):
        path = tmp_path / "trace.json.gz"
        path.write_bytes(data)
        with pytest.raises(InputError, match="cannot be read"):
            read_trace(path)


def test_a_real_trace_has_ops_calls_and_marks(tmp_path: Path) -> None:
    """Of the installed torch: two small steps with stacks."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True
    ) as profiler:
        for _ in range(2):
            model(torch.zeros(2, 8)).sum().backward()
            optimizer.step()
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    found = read_trace(path)
    kinds = {each.kind for each in found.functions}
    assert {"compute", "python"} <= kinds
    assert sum("Optimizer.step" in mark.name for mark in found.marks) == 2
    assert found.broken == 0
    assert found.events == len(json.loads(path.read_text())["traceEvents"])
    called = found.caller >= 0
    assert called.any()
    assert np.all(found.start_us[called] >= found.start_us[found.caller[called]] - 1e-3)


def test_where_an_object_lies_is_not_its_name() -> None:
    """The same call on two objects is one function: addresses differ from worker to worker."""
    calls = [
        call("<built-in method recv of socket object at 0x7f01>", 1, None, 0, 10),
        call("<built-in method recv of socket object at 0x7f02ab>", 2, None, 20, 10),
    ]
    found = parse(json.dumps({"traceEvents": calls}))
    assert [function.name for function in found.functions] == ["<built-in method recv of socket object>"]
    assert found.function.tolist() == [0, 0]


def test_a_collection_calls_nobody() -> None:
    """It has no number, and so has the function that nobody called no caller."""
    collection = event("Python GC", "python_function", 2, 3)
    found = parse(json.dumps({"traceEvents": [collection, call("main", 1, None, 0, 10)]}))
    assert {function.name: function.caller for function in found.functions} == {"Python GC": -1, "main": -1}
    assert found.caller.tolist() == [-1, -1]


def test_what_times_count_from_is_told() -> None:
    """So that samples of the host can be laid beside them."""
    events = [call("main", 1, None, 0, 10)]
    assert parse(json.dumps({"baseTimeNanoseconds": 17, "traceEvents": events})).base_ns == 17
    assert parse(json.dumps({"traceEvents": events})).base_ns == 0
