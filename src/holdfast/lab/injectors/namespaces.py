"""A network of its own for a job: one namespace per rank, joined by a bridge, each link shaped by htb.

Every rank has an emulated NIC of a nominal rate in both directions: its own end shapes what it sends, the
bridge's end what it receives. Needs root and iproute2. All of it lives in namespaces of our own, bridge
included; removing them removes everything, and leftovers of dead owners are swept.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.lab.owner import is_leftover, owned_name

NIC = "eth0"
FOLDER = Path("/var/run/netns")
_serial = 0


def available() -> tuple[bool, str]:
    """Say whether namespaces can be made here, or why not."""
    if os.geteuid() != 0:
        return False, "needs root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return False, f"{' and '.join(missing)} not found (iproute2)"
    return True, "ip netns, veth, htb"


class Network:
    """The namespaces of one job; use it as a context."""

    def __init__(self, ranks: int, nic_bytes_s: float) -> None:
        global _serial  # noqa: PLW0603 - one process may run many jobs, each with a network.
        _serial += 1
        self.ranks = ranks
        self.nic_bytes_s = nic_bytes_s
        self._switch = owned_name(f"{_serial}-switch")
        self._names = [owned_name(f"{_serial}-rank{rank}") for rank in range(ranks)]

    def __enter__(self) -> Network:
        sweep()
        atexit.register(self.remove)
        try:
            self._build()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()

    def namespace(self, rank: int) -> str:
        """Return the name of a rank's namespace."""
        return self._names[rank]

    def address(self, rank: int) -> str:
        """Return the address of a rank."""
        return f"10.77.{rank // 250}.{rank % 250 + 1}"

    def set_nic(self, rank: int, bytes_s: float) -> None:
        """Change the rate of a rank's NIC in both directions."""
        _tc(self._names[rank], [_rate_of("change", NIC, 1, bytes_s)])
        _tc(self._switch, [_rate_of("change", f"port{rank}", 1, bytes_s)])

    def slow_path(self, source: int, target: int, bytes_s: float) -> None:
        """Give what one rank sends to another a rate of its own."""
        number = target + 2
        match = f"filter add dev {NIC} parent 1: protocol ip prio {number} u32 match ip dst"
        filtered = f"{match} {self.address(target)}/32 flowid 1:{number}"
        _tc(self._names[source], [_rate_of("add", NIC, number, bytes_s), filtered])

    def free_path(self, source: int, target: int) -> None:
        """Take that rate away again."""
        number = target + 2
        commands = [
            f"filter del dev {NIC} parent 1: prio {number}",
            f"class del dev {NIC} classid 1:{number}",
        ]
        _tc(self._names[source], commands)

    def remove(self) -> None:
        """Remove the namespaces; twice does no harm."""
        atexit.unregister(self.remove)
        for name in [*self._names, self._switch]:
            _remove(name)

    def _build(self) -> None:
        _ip([f"netns add {name}" for name in [self._switch, *self._names]])
        _ip(["link add bridge type bridge", "link set bridge up"], self._switch)
        for rank, name in enumerate(self._names):
            port = f"port{rank}"
            pair = f"link add {port} type veth peer name {NIC} netns {name}"
            _ip([pair, f"link set {port} master bridge", f"link set {port} up"], self._switch)
            address = f"address add {self.address(rank)}/16 dev {NIC}"
            _ip(["link set lo up", address, f"link set {NIC} up"], name)
            _tc(name, [f"qdisc add dev {NIC} root handle 1: htb default 1", self._nominal(NIC)])
            _tc(self._switch, [f"qdisc add dev {port} root handle 1: htb default 1", self._nominal(port)])

    def _nominal(self, device: str) -> str:
        return _rate_of("add", device, 1, self.nic_bytes_s)


class NamespaceNic:
    """The NIC of a rank at 1/severity of its rate."""

    via = "namespace"

    def __init__(self, network: Network, rank: int, severity: float) -> None:
        self._network = network
        self._rank = rank
        self._severity = severity

    def apply(self) -> None:
        """Slow the NIC down."""
        self._network.set_nic(self._rank, self._network.nic_bytes_s / self._severity)

    def relieve(self) -> None:
        """Give it its nominal rate."""
        if (FOLDER / self._network.namespace(self._rank)).exists():
            self._network.set_nic(self._rank, self._network.nic_bytes_s)


class NamespaceLink:
    """The path between two ranks at 1/severity of a NIC's rate, both ways; other paths stay as they are."""

    via = "namespace"

    def __init__(self, network: Network, ends: tuple[int, int], severity: float) -> None:
        self._network = network
        self._directions = [ends, ends[::-1]]
        self._severity = severity
        self._is_applied = False

    def apply(self) -> None:
        """Slow the path down."""
        self._is_applied = True
        for source, target in self._directions:
            self._network.slow_path(source, target, self._network.nic_bytes_s / self._severity)

    def relieve(self) -> None:
        """Send the traffic through the NICs' common rate again."""
        if self._is_applied:
            self._is_applied = False
            for source, target in self._directions:
                self._network.free_path(source, target)


def sweep() -> None:
    """Remove namespaces whose owner died before it could."""
    for path in sorted(FOLDER.glob("holdfast-lab-*")):
        if is_leftover(path.name):
            _remove(path.name)


def _remove(name: str) -> None:
    if (FOLDER / name).exists():
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _rate_of(verb: str, device: str, number: int, bytes_s: float) -> str:
    # `bps` is bytes per second to tc. The burst is what a timer tick at this rate lets through, or a packet.
    rate, burst = round(bytes_s), max(round(bytes_s / 1000), 16_000)
    shape = f"htb rate {rate}bps ceil {rate}bps burst {burst}b cburst {burst}b quantum 16000"
    return f"class {verb} dev {device} parent 1: classid 1:{number} {shape}"


def _ip(commands: list[str], namespace: str | None = None) -> None:
    _batch(["ip", *(["-n", namespace] if namespace else [])], commands)


def _tc(namespace: str, commands: list[str]) -> None:
    _batch(["tc", "-n", namespace], commands)


def _batch(tool: list[str], commands: list[str]) -> None:
    done = subprocess.run(
        [*tool, "-batch", "-"], input="\n".join(commands) + "\n", text=True, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise HoldfastError(
            f"{' '.join(tool)}: {done.stderr.strip().splitlines()[0]} (in: {'; '.join(commands)})"
        )
