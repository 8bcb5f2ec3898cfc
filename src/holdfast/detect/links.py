"""How fast the links between ranks are, from what the kernels count about TCP connections at both ends.

The rate of a link is what it moved over the time in which it had something to move, so a link between ranks
that are waiting is not a slow one. Only TCP connections of the workers are seen: not RDMA, NVLink or shared
memory, and not those through an address translation, whose ends do not match.

One wait is left in it. Data that a late receiver has not read is acknowledged when it reads, or by its kernel
after 40 ms, and until then the sender counts as busy. So each rate comes with how often that may have
happened: in every step, and as often as the kernel had to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

LEAST_BYTES = 1 << 20
"""Less tells nothing: at a gigabyte a second it is a millisecond, and busy time comes in ticks of 1 to 10."""
LEAST_BUSY_S = 0.02
"""Less busy time counts as that much, for the same reason: the rate is then the least that it can be."""
_LEAST_SHARE_OF_SEGMENT = 0.25
"""Segments that are emptier on average belong to small messages: round trips, not rates."""
_LARGEST_SEGMENT = 8948
"""Of a jumbo frame. Within a host segments may hold 64 KB, and a quarter of that is no small message;"""
_LEAST_OF_BUSIEST = 0.25
"""if the connection carries so much of what the busiest one does: else it may be small ones all the same."""


class SocketCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel counted about one TCP connection since it was made; None: it does not tell."""

    local: str
    """Address and port of this end."""
    peer: str
    mss_bytes: int | None = None
    """The largest segment that it sends."""
    rtt_us: int | None = None
    min_rtt_us: int | None = None
    retransmits: int | None = None
    bytes_acked: int | None = None
    bytes_received: int | None = None
    notsent_bytes: int | None = None
    segments_sent: int | None = None
    delivery_rate_bytes_s: int | None = None
    busy_us: int | None = None
    """With data on its way or waiting for it."""
    rwnd_limited_us: int | None = None
    """Part of that: the receiver had no room, so it was late."""
    sndbuf_limited_us: int | None = None
    spurious_retransmits: int | None = None
    """Those that the receiver had got already."""


class LinkSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The TCP connections of one rank at one time."""

    rank: int
    at_s: float
    """On the node's monotonic clock."""
    host: str = ""
    """Name of the machine and its network namespace: a loopback address means something only there."""
    sockets: list[SocketCounters]
    left_out: int = 0
    """Connections that found no room."""
    steps: int = 0
    """How many the rank had done."""
    delayed_acks: int | None = None
    """How often the kernel of that host acknowledged for a receiver that had not read for 40 ms."""
    pid: int = 0
    attempt: int = 0


class LinkRate(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank sent to another between two snapshots, over all connections of the two."""

    source: int
    target: int
    moved_bytes: int
    busy_s: float
    """Summed over connections; without the time in which the receiver had no room."""
    elapsed_s: float
    rate_bytes_s: float | None
    """Of one connection while it is busy; None: too little was moved to tell."""
    steps: int = 0
    """That the source did in this time."""
    delayed_acks: float = 0.0
    """Of the target's host in as much time, for whomever."""
    is_local: bool = False
    """Whether both ranks are on one host, where bytes are copied rather than sent."""
    retransmits: int = 0
    """Segments that were lost; not those that the receiver had got already."""
    rtt_s: float | None = None
    """The longest of the connections, at the end."""


class _Flow(msgspec.Struct, frozen=True):
    """What one connection did between two snapshots."""

    moved_bytes: int
    busy_us: int
    retransmits: int
    rtt_us: int | None
    is_bulk: bool
    """Whether its segments are full."""
    is_fair: bool
    """Whether they would be between hosts."""


def link_rates(before: Sequence[LinkSnapshot], after: Sequence[LinkSnapshot]) -> list[LinkRate]:
    """Return the rates of all links whose both ends are among the ranks, by source and target."""
    started = {snapshot.rank: snapshot for snapshot in before}
    ended = {snapshot.rank: snapshot for snapshot in after}
    owners = {
        _name(snapshot.host, each.local, each.peer): snapshot.rank
        for snapshot in after
        for each in snapshot.sockets
    }
    flows: dict[tuple[int, int], list[_Flow]] = {}
    for rank, end in sorted(ended.items()):
        for each, flow in _flows(started.get(rank), end):
            target = owners.get(_name(end.host, each.peer, each.local))
            if target is not None and target != rank:
                flows.setdefault((rank, target), []).append(flow)
    busiest = max((flow.moved_bytes for each in flows.values() for flow in each), default=0)
    return [
        _rate(ends, [_as_bulk(flow, busiest) for flow in flows[ends]], started, ended)
        for ends in sorted(flows)
    ]


def _as_bulk(flow: _Flow, busiest: int) -> _Flow:
    is_much = flow.moved_bytes >= _LEAST_OF_BUSIEST * busiest
    return msgspec.structs.replace(flow, is_bulk=flow.is_bulk or (flow.is_fair and is_much))


def _name(host: str, local: str, peer: str) -> tuple[str, str, str]:
    """Return what names one end of a connection among all hosts."""
    return (host if local.startswith(("127.", "[::1]:")) else "", local, peer)


def _flows(start: LinkSnapshot | None, end: LinkSnapshot) -> Iterator[tuple[SocketCounters, _Flow]]:
    """Yield the connections that are in both snapshots of a rank, and what they did between them."""
    if start is None or (start.pid, start.attempt) != (end.pid, end.attempt):
        return
    known = {(each.local, each.peer): each for each in start.sockets}
    for each in end.sockets:
        first = known.get((each.local, each.peer))
        flow = None if first is None else _flow(first, each)
        if flow is not None:
            yield each, flow


def _flow(first: SocketCounters, last: SocketCounters) -> _Flow | None:
    """Return what a connection did; None if that is not known, or it is another with the same ends."""
    moved = _growth(first.bytes_acked, last.bytes_acked)
    busy = _growth(first.busy_us, last.busy_us)
    if moved is None or busy is None or moved < 0 or busy < 0:
        return None
    segments = _growth(first.segments_sent, last.segments_sent)
    largest = last.mss_bytes or 0
    least = (segments or 0) * _LEAST_SHARE_OF_SEGMENT
    return _Flow(
        moved,
        max(0, busy - (_growth(first.rwnd_limited_us, last.rwnd_limited_us) or 0)),
        _lost(first, last),
        last.rtt_us,
        moved >= least * largest,
        moved >= least * min(largest, _LARGEST_SEGMENT),
    )


def _lost(first: SocketCounters, last: SocketCounters) -> int:
    sent = _growth(first.retransmits, last.retransmits) or 0
    needless = _growth(first.spurious_retransmits, last.spurious_retransmits) or 0
    return max(0, sent - needless)


def _growth(first: int | None, last: int | None) -> int | None:
    return None if first is None or last is None else last - first


def _rate(
    ends: tuple[int, int],
    flows: Sequence[_Flow],
    started: Mapping[int, LinkSnapshot],
    ended: Mapping[int, LinkSnapshot],
) -> LinkRate:
    source, target = ends
    bulk = [flow for flow in flows if flow.is_bulk]
    moved = sum(flow.moved_bytes for flow in bulk)
    busy_s = sum(flow.busy_us for flow in bulk) / 1e6
    elapsed_s = ended[source].at_s - started[source].at_s
    rtts = [flow.rtt_us for flow in flows if flow.rtt_us is not None]
    return LinkRate(
        source=source,
        target=target,
        moved_bytes=moved,
        busy_s=busy_s,
        elapsed_s=elapsed_s,
        rate_bytes_s=moved / max(busy_s, LEAST_BUSY_S) if moved >= LEAST_BYTES else None,
        steps=max(0, ended[source].steps - started[source].steps),
        delayed_acks=elapsed_s * _delayed_per_s(started.get(target), ended[target]),
        is_local=ended[source].host == ended[target].host,
        retransmits=sum(flow.retransmits for flow in flows),
        rtt_s=max(rtts) / 1e6 if rtts else None,
    )


def _delayed_per_s(start: LinkSnapshot | None, end: LinkSnapshot) -> float:
    """Return how often per second the kernel delayed an acknowledgement; snapshots are not simultaneous."""
    count = None if start is None else _growth(start.delayed_acks, end.delayed_acks)
    if start is None or count is None or end.at_s <= start.at_s:
        return 0.0
    return max(0, count) / (end.at_s - start.at_s)
