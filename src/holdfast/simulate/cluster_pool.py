"""The GPUs of a cluster: which are free, in use or out of service, and for how long each in all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice


class Pool:
    """Nodes with GPUs that jobs take and give back; every GPU second ends up in one of three accounts."""

    def __init__(self, nodes: int, gpus_per_node: int) -> None:
        self.gpus_per_node = gpus_per_node
        self.free = [gpus_per_node] * nodes
        self.is_out = [False] * nodes
        # By the number of free GPUs, those nodes that serve; what changed last comes last, so that jobs go
        # round the cluster.
        self._by_free: list[dict[int, None]] = [{} for _ in range(gpus_per_node + 1)]
        self._by_free[gpus_per_node] = dict.fromkeys(range(nodes))
        self._used = self._out = 0
        self._since_s = 0.0
        self.spent_s = {"used": 0.0, "idle": 0.0, "out": 0.0}

    def needs(self, gpus: int) -> tuple[int, int]:
        """Return how many nodes a job takes, and how many GPUs of each."""
        nodes = -(-gpus // self.gpus_per_node)
        return nodes, gpus if nodes == 1 else self.gpus_per_node

    @property
    def whole(self) -> Iterable[int]:
        """Nodes of which all GPUs are free."""
        return self._by_free[self.gpus_per_node]

    def fit(self, gpus: int, but: Collection[int] = ()) -> list[int] | None:
        """Return the nodes that a job would get now, the fullest that will do; None: there are not enough."""
        nodes, each = self.needs(gpus)
        for free in range(each, self.gpus_per_node + 1):
            found = list(islice((node for node in self._by_free[free] if node not in but), nodes))
            if len(found) == nodes:
                return found
        return None

    def take(self, nodes: Iterable[int], each: int, now_s: float) -> None:
        """Give GPUs of these nodes to a job."""
        self._account(now_s)
        for node in nodes:
            assert not self.is_out[node], f"node {node} is out of service"
            assert self.free[node] >= each, f"node {node} has {self.free[node]} GPUs free, not {each}"
            self._move(node, -each)
            self._used += each

    def give(self, nodes: Iterable[int], each: int, now_s: float) -> None:
        """Take GPUs back from a job that has ended."""
        self._account(now_s)
        for node in nodes:
            self._move(node, each)
            self._used -= each

    def put_out(self, node: int, now_s: float) -> None:
        """Take a node, on which nothing runs any more, out of service."""
        assert self.free[node] == self.gpus_per_node
        assert not self.is_out[node]
        self._account(now_s)
        del self._by_free[self.gpus_per_node][node]
        self.is_out[node] = True
        self._out += self.gpus_per_node

    def put_in(self, node: int, now_s: float) -> None:
        """Put a node back into service."""
        assert self.is_out[node]
        self._account(now_s)
        self._by_free[self.gpus_per_node][node] = None
        self.is_out[node] = False
        self._out -= self.gpus_per_node

    def close(self, now_s: float) -> None:
        """Bring the accounts up to date."""
        self._account(now_s)

    def _move(self, node: int, by: int) -> None:
        del self._by_free[self.free[node]][node]
        self.free[node] += by
        self._by_free[self.free[node]][node] = None

    def _account(self, now_s: float) -> None:
        passed_s = now_s - self._since_s
        idle = len(self.free) * self.gpus_per_node - self._used - self._out
        for name, gpus in (("used", self._used), ("idle", idle), ("out", self._out)):
            self.spent_s[name] += gpus * passed_s
        self._since_s = now_s
