"""Take shipments: all of them in one transaction, each event and row of theirs once.

A run's row is locked before anything of the run is written. So a run's numbers rise in the order in which
they can be read, and what rows add up to can be read, added to and written back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec
import sqlalchemy as sa

from holdfast.errors import StoreError
from holdfast.serve.store import tables
from holdfast.serve.store.incoming import Incoming, Line, Row, microseconds
from holdfast.serve.store.ordering import open_orders
from holdfast.serve.store.rundata import Told, merge_told, told_columns
from holdfast.serve.store.statements import insert_new, some
from holdfast.serve.store.summing import Nodes, add_to_nodes, add_to_pace, find_nodes
from holdfast.serve.store.values import Taken

Runs = dict[str, sa.RowMapping]
"""The rows of runs, by their key."""


def take(connection: sa.Connection, incoming: Sequence[Incoming], now: datetime) -> list[Taken]:
    """Keep what is new; say how much of each shipment was."""
    usable = [item for item in incoming if item.is_usable]
    runs = _lock_runs(connection, usable)
    new_events = _take_events(connection, runs, usable)
    known = find_nodes(connection, {(runs[i.shipment.run.key]["id"], i.shipment.node) for i in usable})
    new_rows = _take_rows(connection, runs, usable, known)
    nodes = add_to_nodes(connection, known, _rows_by_node(runs, usable, new_rows))
    add_to_pace(connection, [(run, row) for (run, _, _), row in sorted(new_rows.items())])
    _update_runs(connection, runs, usable, (new_events, new_rows, nodes), now)
    counted = _count(runs, incoming, new_events, new_rows)
    return _add_orders(connection, runs, incoming, counted)


_Events = dict[tuple[int, str], Line]
"""By run and id."""
_Rows = dict[tuple[int, int, int], Row]
"""By run, node and time."""


def _lock_runs(connection: sa.Connection, usable: Sequence[Incoming]) -> Runs:
    keys = sorted({item.shipment.run.key for item in usable})
    for _ in range(10):  # One could be removed between the two statements, for its age.
        insert_new(connection, tables.runs, [_empty_run(key) for key in keys], ["key"])
        query = sa.select(tables.runs).order_by(tables.runs.c.key).with_for_update()
        found: Runs = {}
        for part in some(keys):
            for row in connection.execute(query.where(tables.runs.c.key.in_(part))).mappings():
                found[row["key"]] = row
        if len(found) == len(keys):
            return found
    raise StoreError(f"{len(keys) - len(found)} of {len(keys)} runs were removed while they were written to")


def _empty_run(key: str) -> dict[str, object]:
    told = told_columns(Told(name="", told_by=1 << 30))
    return {"key": key, **told, "heard_at": "", "step": 0, "step_us": _NEVER_US, **_NO_COUNTS}


_NEVER_US = -(1 << 62)
_NO_COUNTS = {"nodes": 0, "events": 0, "rows": 0}


def _take_events(connection: sa.Connection, runs: Runs, usable: Sequence[Incoming]) -> _Events:
    wanted: _Events = {}
    for item in usable:
        run = runs[item.shipment.run.key]["id"]
        for line in item.lines:
            wanted.setdefault((run, line.event_id), line)
    rows = [{"run": run, "event_id": line.event_id, "body": line.body} for (run, _), line in wanted.items()]
    new = insert_new(connection, tables.events, rows, ["run", "event_id"])
    taken = {key: line for key, line in wanted.items() if key in new}
    _answer_orders(connection, taken)
    return taken


def _answer_orders(connection: sa.Connection, taken: _Events) -> None:
    orders = tables.orders.c
    for (run, _), line in taken.items():
        if line.answer is not None:
            order_id, outcome = line.answer
            same = (orders.run == run) & (orders.order_id == order_id) & orders.outcome.is_(None)
            connection.execute(sa.update(tables.orders).where(same).values(outcome=outcome))


def _take_rows(connection: sa.Connection, runs: Runs, usable: Sequence[Incoming], known: Nodes) -> _Rows:
    wanted: _Rows = {}
    for item in usable:
        run = runs[item.shipment.run.key]["id"]
        for row in item.rows:
            wanted.setdefault((run, item.shipment.node, row.at_us), row)
    floor = {place: row["floor_us"] for place, row in known.items()}
    rows = [
        {"run": run, "node": node, "at_us": at_us}
        for run, node, at_us in sorted(wanted)
        if at_us > floor.get((run, node), _NEVER_US)
    ]
    new = insert_new(connection, tables.seen, rows, ["run", "node", "at_us"])
    return {key: row for key, row in wanted.items() if key in new}


def _rows_by_node(runs: Runs, usable: Sequence[Incoming], new: _Rows) -> dict[tuple[int, int], list[Row]]:
    """Return the new rows of every node that was heard of, also of those that sent none."""
    found: dict[tuple[int, int], list[Row]] = {
        (runs[item.shipment.run.key]["id"], item.shipment.node): [] for item in usable
    }
    for (run, node, _), row in new.items():
        found[run, node].append(row)
    return found


def _update_runs(
    connection: sa.Connection,
    runs: Runs,
    usable: Iterable[Incoming],
    new: tuple[_Events, _Rows, Counter[int]],
    now: datetime,
) -> None:
    events, rows, nodes = new
    event_counts = Counter(run for run, _ in events)
    row_counts = Counter(run for run, _, _ in rows)
    told = merge_told(runs, usable)
    steps = _last_steps(runs, rows, microseconds(now.isoformat()))
    changed = []
    for number, (key, run) in enumerate(sorted(runs.items())):
        # Nobody is heard at the same moment as another: pages of runs are cut by this time.
        heard_at = (now + timedelta(microseconds=number)).isoformat(timespec="microseconds")
        values = {
            "number": run["id"],
            **told_columns(told[key]),
            "heard_at": max(heard_at, run["heard_at"]),
            "events": run["events"] + event_counts[run["id"]],
            "rows": run["rows"] + row_counts[run["id"]],
            "nodes": run["nodes"] + nodes[run["id"]],
            "step_us": steps[run["id"]][0],
            "step": steps[run["id"]][1],
        }
        changed.append(values)
    if changed:
        columns: dict[str, sa.BindParameter[object]] = {
            name: sa.bindparam(name) for name in changed[0] if name != "number"
        }
        mine = tables.runs.c.id == sa.bindparam("number")
        connection.execute(sa.update(tables.runs).where(mine).values(columns), changed)


def _last_steps(runs: Runs, rows: _Rows, now_us: int) -> dict[int, tuple[int, int]]:
    """Return time and step of each run's newest row: after a restart its step is not the highest."""
    last = {run["id"]: (run["step_us"], run["step"]) for run in runs.values()}
    for (run_id, _, at_us), row in rows.items():
        if row.step is not None:
            last[run_id] = max(last[run_id], (min(at_us, now_us), row.step))
    return last


def _add_orders(
    connection: sa.Connection, runs: Runs, incoming: Sequence[Incoming], counted: Sequence[Taken]
) -> list[Taken]:
    """Tell each shipment of a first node, whose guard carries them out, what its run is asked to do."""
    asked = {item.shipment.run.key for item in incoming if item.is_usable and item.shipment.node == 0}
    waiting = open_orders(connection, {runs[key]["id"] for key in asked})
    return [
        msgspec.structs.replace(taken, orders=waiting.get(runs[item.shipment.run.key]["id"], []))
        if item.shipment.run.key in asked and item.shipment.node == 0
        else taken
        for item, taken in zip(incoming, counted, strict=True)
    ]


def _count(runs: Runs, incoming: Sequence[Incoming], new_events: _Events, new_rows: _Rows) -> list[Taken]:
    """Share out what was new: it counts for the first shipment that brought it."""
    left_events, left_rows = set(new_events), set(new_rows)
    found = []
    for item in incoming:
        taken = 0
        for line in item.lines:
            event = runs[item.shipment.run.key]["id"], line.event_id
            taken += event in left_events
            left_events.discard(event)
        for row in item.rows:
            place = runs[item.shipment.run.key]["id"], item.shipment.node, row.at_us
            taken += place in left_rows
            left_rows.discard(place)
        known = len(item.lines) + len(item.rows) - taken
        found.append(Taken(taken=taken, known=known, refused=item.refused))
    return found
