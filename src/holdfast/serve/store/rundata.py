"""What the nodes of a run say of it, as one: the lowest node is believed first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import sqlalchemy as sa

from holdfast.serve.store.incoming import Incoming, clean
from holdfast.serve.store.values import RunRow
from holdfast.shipment import Run

MOST_ARGUMENTS = 1000
MOST_VERSIONS = 100


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run besides what happened."""

    name: str
    run_id: str = ""
    host: str = ""
    started_at: str = ""
    command: list[str] = []
    versions: dict[str, str] = {}
    told_by: int


def merge_told(runs: Mapping[str, sa.RowMapping], usable: Iterable[Incoming]) -> dict[str, Told]:
    """Return what is known now, by the keys of the runs."""
    told = {key: _from_columns(row) for key, row in runs.items()}
    for item in usable:
        key = item.shipment.run.key
        told[key] = _merge(told[key], _from_run(item.shipment.run, item.shipment.node))
    return told


def told_columns(told: Told) -> dict[str, object]:
    """Return it as columns of ``runs``."""
    return {
        **msgspec.structs.asdict(told),
        "command": msgspec.json.encode(told.command).decode(),
        "versions": msgspec.json.encode(told.versions).decode(),
    }


def run_row(row: sa.RowMapping) -> RunRow:
    """Return a row of ``runs`` as others see it."""
    values = {name: row[name] for name in RunRow.__struct_fields__ if name not in ("command", "versions")}
    told = _from_columns(row)
    return RunRow(**values, command=told.command, versions=told.versions)


def _from_columns(row: sa.RowMapping) -> Told:
    values = {name: row[name] for name in Told.__struct_fields__}
    values["command"] = msgspec.json.decode(row["command"], type=list[str])
    values["versions"] = msgspec.json.decode(row["versions"], type=dict[str, str])
    return Told(**values)


def _from_run(run: Run, node: int) -> Told:
    return Told(
        name=clean(run.name, 1000),
        run_id=clean(run.run_id, 1000),
        host=clean(run.host, 1000),
        started_at=clean(run.started_at, 100),
        command=[clean(word) for word in run.command[:MOST_ARGUMENTS]],
        versions={clean(k, 100): clean(v, 1000) for k, v in sorted(run.versions.items())[:MOST_VERSIONS]},
        told_by=node,
    )


def _merge(known: Told, new: Told) -> Told:
    first, second = (new, known) if new.told_by <= known.told_by else (known, new)
    return Told(
        name=first.name or second.name,
        run_id=first.run_id or second.run_id,
        host=first.host or second.host,
        started_at=first.started_at or second.started_at,
        command=first.command or second.command,
        versions=first.versions or second.versions,
        told_by=first.told_by,
    )
