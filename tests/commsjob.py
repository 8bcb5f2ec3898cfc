"""A job of two ranks that calls all there is in torch.distributed, each call in a step of its own."""

from __future__ import annotations

import hashlib
import inspect
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d as c10d

from pairs import join_group, rank, tell

STALL_S = 0.3
_TALKS = {"group", "src", "dst", "p2p_op_list"}
_SILENT = ("get_", "new_", "init_", "destroy_", "split_", "shrink_", "is_")
called: set[str] = set()


def cases(other: int) -> dict[str, Callable[[], Any]]:
    """Return the calls, by a name of the case that begins with the function's."""
    found: dict[str, Callable[[], Any]] = {}
    for name, shapes in _collectives().items():
        for at, shape in enumerate(shapes):
            found[f"{name} {at}"] = partial(_call_shape, _call, name, shape)
            found[f"{name} {at} later"] = partial(_call_shape, _call_later, name, shape)
    return found | _objects() | _messages(other) | _troubles()


def _t(size: int = 4) -> torch.Tensor:
    return torch.arange(size, dtype=torch.float32) + 10 * rank()


def _two() -> list[torch.Tensor]:
    return [torch.zeros(4), torch.zeros(4)]


def _world() -> Any:
    return dist.group.WORLD


Shape = Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]


def _collectives() -> dict[str, list[Shape]]:
    """Return how each function is called: by position and by keyword."""
    return {
        "all_reduce": [
            lambda: ((_t(),), {}),
            lambda: ((_t(), dist.ReduceOp.MAX, _world()), {}),
            lambda: ((), {"tensor": _t(), "group": _world(), "op": dist.ReduceOp.SUM}),
        ],
        "all_gather": [lambda: ((_two(), _t()), {}), lambda: ((), {"tensor_list": _two(), "tensor": _t()})],
        "all_gather_into_tensor": [lambda: ((torch.zeros(8), _t()), {"group": _world()})],
        "all_gather_single": [lambda: ((torch.zeros(8), _t(), _world()), {})],
        "all_gather_coalesced": [lambda: (([_two()], [_t()]), {})],
        "all_reduce_coalesced": [lambda: (([_t(), _t(8)],), {})],
        "all_to_all": [lambda: ((_two(), [_t(), _t()]), {})],
        "all_to_all_single": [
            lambda: ((torch.zeros(4), _t()), {}),
            lambda: ((), {"output": torch.zeros(4), "input": _t(), "group": _world()}),
        ],
        "barrier": [lambda: ((), {}), lambda: ((_world(),), {})],
        "broadcast": [
            lambda: ((_t(), 1), {}),
            lambda: ((_t(),), {"src": 0, "group": _world()}),
            lambda: ((_t(),), {"group_src": 1, "group": _world()}),
        ],
        "gather": [lambda: ((_t(), _two() if rank() == 0 else None, 0), {})],
        "reduce": [lambda: ((_t(), 1), {}), lambda: ((_t(),), {"dst": 0, "group": _world()})],
        "reduce_scatter": [lambda: ((torch.zeros(4), [_t(), _t()]), {})],
        "reduce_scatter_tensor": [lambda: ((torch.zeros(2), _t()), {})],
        "reduce_scatter_single": [lambda: ((torch.zeros(2), _t()), {"group": _world()})],
        "scatter": [lambda: ((torch.zeros(4), [_t(), _t()] if rank() == 1 else None, 1), {})],
    }


def _call_shape(call: Callable[..., Any], name: str, shape: Shape) -> Any:
    return call(name, *shape())


def _call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    called.add(name)
    result = getattr(dist, name)(*args, **kwargs)
    return [type(result).__name__, *args, *(value for _, value in sorted(kwargs.items()))]


def _call_later(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    work = getattr(dist, name)(*args, async_op=True, **kwargs)
    if work is not None:
        work.wait()
    return [type(work).__name__, *args]


def _objects() -> dict[str, Callable[[], Any]]:
    def one(name: str, make: Callable[[], tuple[list[Any], tuple[Any, ...]]]) -> Callable[[], Any]:
        def call() -> Any:
            called.add(name)
            into, args = make()
            getattr(dist, name)(*args)
            return into

        return call

    def of(makes: Callable[[list[Any]], tuple[Any, ...]], *into: Any) -> Callable[[], Any]:
        def make() -> tuple[list[Any], tuple[Any, ...]]:
            kept = list(into)
            return kept, makes(kept)

        return make

    me = {"rank": rank()}
    return {
        "all_gather_object": one("all_gather_object", of(lambda into: (into, me), None, None)),
        "broadcast_object_list": one("broadcast_object_list", of(lambda into: (into, 1), me)),
        "gather_object": one(
            "gather_object", of(lambda into: (me, into if rank() == 0 else None, 0), None, None)
        ),
        "scatter_object_list": one("scatter_object_list", of(lambda into: (into, [me, "b"], 0), None)),
        "send_object_list": one(
            "send_object_list" if rank() == 0 else "recv_object_list",
            of(lambda into: (into, 1 - rank()), me if rank() == 0 else None),
        ),
    }


def _messages(other: int) -> dict[str, Callable[[], Any]]:
    def send_or_receive(*, is_by_group: bool) -> Any:
        called.update({"send", "recv"})
        tensor, by = _t(), "group_" if is_by_group else ""
        if rank() == 0:
            return _call("send", (tensor,), {f"{by}dst": other})
        return _call("recv", (tensor,), {f"{by}src": other})

    def later() -> Any:
        called.update({"isend", "irecv"})
        tensor = torch.zeros(4)
        works = [dist.isend(_t(), other), dist.irecv(tensor, src=other)]
        for work in works:
            assert work is not None
            work.wait()
        return tensor

    def batch(send: Any, receive: Any) -> Any:
        called.add("batch_isend_irecv")
        tensor = torch.zeros(4)
        messages = [dist.P2POp(send, _t(), other), dist.P2POp(receive, tensor, other)]
        for work in dist.batch_isend_irecv(messages):
            work.wait()
        return tensor

    plain = (inspect.unwrap(dist.isend), inspect.unwrap(dist.irecv))
    return {
        "send": lambda: send_or_receive(is_by_group=False),
        "send by group": lambda: send_or_receive(is_by_group=True),
        "isend": later,
        "batch_isend_irecv": lambda: batch(dist.isend, dist.irecv),
        "batch_isend_irecv with names from before": lambda: batch(*plain),
        "monitored_barrier": lambda: _call("monitored_barrier", (), {}),
    }


def _troubles() -> dict[str, Callable[[], Any]]:
    def slow_peer() -> Any:
        tensor = _t(1024)
        if rank() == 1:
            time.sleep(STALL_S)
        dist.all_reduce(tensor)
        return tensor

    def slow_peer_later() -> Any:
        tensor = _t(1024)
        if rank() == 1:
            time.sleep(STALL_S)
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        work.wait()
        return tensor

    return {
        "slow peer": slow_peer,
        "slow peer, later": slow_peer_later,
        "no tensor": lambda: dist.all_reduce("x"),
        "no such rank": lambda: dist.broadcast(_t(), 7),
        "no argument": lambda: _call("all_reduce", (), {}),
        "wrong keyword": lambda: dist.all_reduce(_t(), gruppe=None),  # type: ignore[call-arg]
        "no operation": lambda: dist.P2POp(print, _t(), 0),
    }


def outcome(case: Callable[[], Any]) -> Any:
    """Return what came of a case, as text."""
    try:
        return _text(case())
    except Exception as error:
        # Our frames may be in the traceback, but nothing else: no second error, no cause.
        last = traceback.extract_tb(error.__traceback__)[-1].name
        return [type(error).__name__, _hash(str(error)), repr(error.__context__), repr(error.__cause__), last]


def _text(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_text(each) for each in value]
    return value if isinstance(value, (int, str, dict, type(None))) else type(value).__name__


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12] if "0x" not in text else "with an address"


def missing() -> list[str]:
    """Return the functions that talk to others and were not called."""
    names = []
    for name in sorted(c10d.__all__):
        function = getattr(c10d, name)
        is_function = inspect.isfunction(function) and not name.startswith(_SILENT)
        if is_function and _TALKS & set(inspect.signature(function).parameters):
            names.append(name)
    return [name for name in names if name not in called | {"recv_object_list", "send_object_list"}]


def main() -> None:
    """Call everything, ending a step after each case."""
    warnings.simplefilter("ignore")
    join_group()
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters())
    found, names = [], []
    dist.barrier()
    optimizer.step()
    for name, case in cases(1 - rank()).items():
        found.append(outcome(case))
        names.append(name)
        optimizer.step()
    tell({"names": names, "found": found, "missing": missing()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
