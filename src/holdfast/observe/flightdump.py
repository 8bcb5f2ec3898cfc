"""One Flight Recorder dump: the last collectives and point-to-point operations of one rank.

Bytes in, a ``Dump`` out. They are JSON or a pickle of plain data, as PyTorch writes them for NCCL and gloo
(versions 2.x); unknown keys are ignored, and optional ones may be missing.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from holdfast.observe.loose import as_dict, as_int, as_list, as_text
from holdfast.observe.plainpickle import MOST_VALUES, read_plain

MOST_OPERATIONS = 1_000_000
MOST_RANKS = 1 << 20
_MOST_TENSORS, _MOST_DIMENSIONS = 16, 16


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One collective or point-to-point operation that a rank has enqueued."""

    record: int
    """Counts the operations of the rank, over all groups."""
    group: str
    seq: int
    """Counts the collectives of the group; of a point-to-point operation: those before it."""
    op: int
    """Counts the operations of the group, of whatever kind."""
    kind: str
    """``all_reduce``, ``send``, …"""
    src: int | None = None
    """Rank that sends, if it is point-to-point."""
    dst: int | None = None
    is_done: bool
    is_started: bool
    """The device is inside it; only recorded where timing is switched on."""
    elements: int
    dtypes: list[str] = []

    @property
    def is_p2p(self) -> bool:
        """Whether it has two ends rather than a group."""
        return self.src is not None


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank recorded."""

    rank: int
    groups: dict[str, list[int]]
    """Ranks of each group; empty where the backend does not say."""
    labels: dict[str, str]
    operations: list[Operation]
    """The oldest first."""
    enqueued: dict[str, int] = {}
    """The number of the last operation of each group, by the rank's own count."""
    has_unseen_messages: bool = False
    """It sent or received what the backend does not record, as gloo does not."""

    @property
    def pending(self) -> list[Operation]:
        """The operations that are not done, the oldest first."""
        return [each for each in self.operations if not each.is_done]


def parse_dump(data: bytes, rank: int) -> Dump:
    """Return what the bytes of a dump say; ValueError if they are none."""
    return _to_dump(rank, _decode(data))


# --- what a file holds ------------------------------------------------------------------------


class _Entry(msgspec.Struct):
    """The keys of an operation that are used; what is in them is looked at one by one."""

    process_group: Any
    profiling_name: Any
    record_id: Any = None
    pg_id: Any = None
    collective_seq_id: Any = None
    op_id: Any = None
    input_sizes: Any = None
    input_dtypes: Any = None
    state: Any = None
    retired: Any = None
    time_discovered_started_ns: Any = None
    time_discovered_completed_ns: Any = None


class _Document(msgspec.Struct):
    entries: list[_Entry]
    pg_config: Any = None
    pg_status: Any = None
    version: Any = None


_DOCUMENT = msgspec.json.Decoder(_Document)


def _decode(data: bytes) -> _Document:
    if data.lstrip()[:1] == b"{":
        if data.count(b"{") + data.count(b"[") > MOST_VALUES:
            raise ValueError("it holds more values than any dump does")
        document = _DOCUMENT.decode(data)
    else:
        raw = read_plain(data)
        if not isinstance(raw, dict) or not isinstance(raw.get("entries"), list):
            raise ValueError("it holds no entries")
        _check_count(raw["entries"])
        document = msgspec.convert(raw, _Document)
    _check_count(document.entries)
    return document


def _check_count(entries: list[Any]) -> None:
    # A few bytes of a pickle can refer to the same entry again.
    if len(entries) > MOST_OPERATIONS:
        raise ValueError(f"it has {len(entries)} entries, expected at most {MOST_OPERATIONS}")


def _to_dump(rank: int, raw: _Document) -> Dump:
    config = as_dict(raw.pg_config)
    groups = _groups(config)
    labels = {name: as_text(as_dict(each).get("desc")) for name, each in config.items() if name}
    operations = []
    local_ids: dict[str, str] = {}
    for index, entry in enumerate(raw.entries):
        name, label = _group(entry)
        labels.setdefault(name, label)
        local_ids[str(entry.pg_id)] = name
        operation = _operation(entry, index, name, groups.get(name, []))
        if operation is not None:
            operations.append(operation)
    operations.sort(key=lambda each: each.record)
    statuses = as_dict(raw.pg_status)
    return Dump(
        rank=rank,
        groups={name: ranks for name, ranks in groups.items() if ranks},
        labels=labels,
        operations=operations,
        enqueued=_enqueued(statuses, _names(statuses, local_ids, groups)),
        has_unseen_messages=any(_counts_unseen(entry) for entry in raw.entries),
    )


def _counts_unseen(entry: _Entry) -> bool:
    is_gloo = as_text(entry.profiling_name).startswith("gloo:")
    return is_gloo and as_int(entry.op_id, -1) > as_int(entry.collective_seq_id, -1)


def _groups(config: dict[str, Any]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    room = 16 * MOST_RANKS  # All groups of a pickle may refer to the same long list.
    for name, each in config.items():
        if name:
            groups[name] = _ranks(as_dict(each).get("ranks"))
            room -= len(groups[name]) + 1
        if room < 0:
            raise ValueError("pg_config has more and larger groups than any job does")
    return groups


def _group(entry: _Entry) -> tuple[str, str]:
    match entry.process_group:
        case [name, label] | (name, label):
            return as_text(name), as_text(label)
    raise ValueError("process_group of an entry is no pair of a name and a description")


_P2P = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")


def _operation(entry: _Entry, index: int, group: str, ranks: list[int]) -> Operation | None:
    kind = as_text(entry.profiling_name).partition(":")[2] or as_text(entry.profiling_name)
    ends: tuple[int | None, int | None] = (None, None)
    if match := _P2P.fullmatch(kind):
        mine, other = (_global(int(local), ranks) for local in match.group(2, 3))
        kind, ends = match[1], (mine, other) if match[1] == "send" else (other, mine)
    elif kind.startswith(("send", "recv")):
        return None  # Nobody can say who is at the other end.
    return Operation(
        record=as_int(entry.record_id, index),
        group=group,
        seq=as_int(entry.collective_seq_id, -1),
        op=as_int(entry.op_id, -1),
        kind=kind,
        src=ends[0],
        dst=ends[1],
        is_done=_is_done(entry),
        is_started=entry.state == "started" or bool(entry.time_discovered_started_ns),
        elements=_elements(entry.input_sizes),
        dtypes=[as_text(each) for each in as_list(entry.input_dtypes)[:_MOST_TENSORS]],
    )


def _is_done(entry: _Entry) -> bool:
    # Gloo leaves the state at "scheduled" and only retires what is done; JSON writes 0 for no time.
    return entry.state == "completed" or entry.retired is True or bool(entry.time_discovered_completed_ns)


def _global(local: int, ranks: list[int]) -> int:
    return ranks[local] if local < len(ranks) else local


def _names(statuses: dict[str, Any], seen: dict[str, str], groups: dict[str, list[int]]) -> dict[str, str]:
    """Return the group of each local number: as its entries say, and else by the order of creation.

    A group is named by a number that all ranks count and numbered by one that only its members count.
    """
    if set(statuses) <= set(seen) or len(statuses) != len(groups):
        return seen
    if not all(name.isdecimal() for name in (*statuses, *groups)):
        return seen
    in_order = dict(zip(sorted(statuses, key=int), sorted(groups, key=int), strict=True))
    agrees = all(in_order.get(number) == name for number, name in seen.items())
    return in_order if agrees else seen


def _enqueued(statuses: dict[str, Any], names: dict[str, str]) -> dict[str, int]:
    counts = {
        names[number]: as_int(as_dict(status).get("last_enqueued_collective"), -1)
        for number, status in statuses.items()
        if number in names
    }
    return {name: count for name, count in counts.items() if count >= 0}


def _ranks(value: Any) -> list[int]:
    """Return the ranks of a group, which are written as a list or as the text of one."""
    if isinstance(value, str):
        value = msgspec.json.decode(value or "[]")
    ranks = list(as_list(value)[:MOST_RANKS])
    if not all(isinstance(rank, int) and 0 <= rank < MOST_RANKS for rank in ranks):
        raise ValueError(f"pg_config has a rank that is no number from 0 to {MOST_RANKS - 1}")
    return ranks


def _elements(sizes: Any) -> int:
    total = 0
    for shape in as_list(sizes)[:_MOST_TENSORS]:
        count = 1
        for size in as_list(shape)[:_MOST_DIMENSIONS]:
            count *= as_int(size, 0)
        total += count
    return total
