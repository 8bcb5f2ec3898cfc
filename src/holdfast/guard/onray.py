"""Work spread over a Ray cluster: for folders with more traces than one machine should read."""

from __future__ import annotations

import importlib
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from holdfast.errors import InputError

_Item = TypeVar("_Item")
_Out = TypeVar("_Out")
_PATIENCE_S = 5.0
_AHEAD = 4
"""Tasks per core of the cluster that are under way at a time."""


def map_on_ray(address: str) -> Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]:
    """Return a ``map`` whose calls run on the cluster at an address; ``local`` starts one on this machine."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise InputError("--ray needs Ray: pip install 'holdfast[ray]'") from error

    def spread(function: Callable[[_Item], _Out], items: Iterable[_Item]) -> Iterator[_Out]:
        _connect(ray, address)
        try:
            work = ray.remote(num_cpus=1)(_calling(function))
            cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
            waiting: deque[Any] = deque()
            for item in items:
                waiting.append(work.remote(item))
                if len(waiting) > _AHEAD * cores:
                    yield ray.get(waiting.popleft())
            while waiting:
                yield ray.get(waiting.popleft())
        finally:
            ray.shutdown()

    return spread


def _connect(ray: Any, address: str) -> None:
    _reach(address)
    try:
        ray.init(
            address=None if address == "local" else address,
            log_to_driver=False,
            logging_level="ERROR",
            include_dashboard=False if address == "local" else None,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        words = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"--ray {address}: cannot connect: {words[0]}") from error


def _reach(address: str) -> None:
    """Find out early that nobody is there: Ray itself waits for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"--ray {address}: cannot connect: {error}") from error


def _calling(function: Callable[[_Item], _Out]) -> Callable[[_Item], _Out]:
    """Return a plain function: Ray takes no partial ones."""

    def call(item: _Item) -> _Out:
        return function(item)

    return call
