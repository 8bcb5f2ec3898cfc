"""Events on nodes: states, health checks, tickets, exclude lists, lines of kernel logs."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from holdfast.errors import InputError
from holdfast.reliability.nodeevents import parse_node_events
from holdfast.reliability.tables import EVENTS, Reading
from holdfast.reliability.xids import Origin, parse_kernel_log

ORIGIN = Origin("UTC", datetime(2024, 3, 10, tzinfo=UTC), None)


def parse(text: str, **options: Any) -> Reading:
    """Read a table of events."""
    reading = parse_node_events(io.BytesIO(text.encode()), "events", **options)
    assert reading.table.schema == pl.Schema(EVENTS)
    return reading


def parse_log(text: str, origin: Origin = ORIGIN) -> Reading:
    """Read a kernel's log."""
    reading = parse_kernel_log(io.BytesIO(text.encode()), "kern.log", origin)
    assert reading.table.schema == pl.Schema(EVENTS)
    assert reading.table.height + reading.broken == reading.rows
    return reading


def at(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_states_of_sacctmgr_are_read() -> None:
    """The worst word of a state counts; what concerns a whole cluster is left out."""
    reading = parse(
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
        "c||2024-01-01T00:00:00|Unknown||Cluster Registered TRES|\n"
        "c|gpu1|2024-01-01T00:00:00|2024-01-01T01:00:00|DOWN*+DRAIN|Not responding|slurm(64030)\n"
        "c|gpu2|2024-01-02T00:00:00|Unknown|IDLE+DRAIN|bad GPU|root(0)\n"
        "c|gpu3|soon|Unknown|DOWN||\n"
    )
    assert reading.table.rows() == [
        (
            "gpu1",
            at("2024-01-01"),
            at("2024-01-01T01:00:00"),
            "state",
            "DOWN",
            "critical",
            None,
            "Not responding",
        ),
        ("gpu2", at("2024-01-02"), None, "state", "DRAIN", "warning", None, "bad GPU"),
    ]
    assert (reading.rows, reading.broken, reading.left_out) == (4, 1, 1)
    assert reading.told[0].why == "time is 'soon', expected a time"


@pytest.mark.parametrize(
    ("said", "name", "severity"),
    [
        ("drained*", "DRAIN", "warning"),
        ("drng", "DRAIN", "warning"),
        ("down$", "DOWN", "critical"),
        ("idle", "IDLE", "ok"),
        ("mix-", "MIXED", "ok"),
        ("ALLOCATED+MAINT", "MAINT", "warning"),
        ("failg", "FAIL", "critical"),
        ("dancing", "DANCING", "unknown"),
        ("", None, None),
    ],
)
def test_a_history_of_sinfo_is_read(said: str, name: str | None, severity: str | None) -> None:
    """Flags behind a state are no part of it."""
    reading = parse(f"node,state,timestamp,reason\ngpu1,{said},2024-01-01 00:00:00,x\n")
    assert reading.table.select("kind", "name", "severity", "at").rows() == [
        ("state", name, severity, at("2024-01-01"))
    ]


def test_health_checks_are_read_from_csv_and_json_lines() -> None:
    """Exit codes become severities; job 0 is none."""
    rows = [
        ("gpu1", "check xid", 2, "Xid 79", 123, 1704067200),
        ("gpu2", "check mount", 0, "fine, all", 0, 1704067200),
        ("gpu3", "check disk", 7, "", 0, 1704067200),
    ]
    names = ("node", "health_check", "result", "_msg", "job_id", "start_time")
    lines = [pl.DataFrame(rows, schema=list(names), orient="row").write_ndjson()]
    sheet = pl.DataFrame(rows, schema=list(names), orient="row").write_csv(quote_style="always")
    for text in (*lines, sheet):
        reading = parse(text)
        assert reading.table.select("node", "at", "kind", "name", "severity", "job", "text").rows() == [
            ("gpu1", at("2024-01-01"), "check", "check xid", "critical", "123", "Xid 79"),
            ("gpu2", at("2024-01-01"), "check", "check mount", "ok", None, "fine, all"),
        ]
        assert [one.why for one in reading.told] == ["result is '7', expected 0, 1, 2 or 3"]


def test_results_may_be_words() -> None:
    """Those that Nagios uses."""
    reading = parse("node,health_check,result,start_time\na,c,WARN,1704067200\na,c,,1704067200\n")
    assert reading.table["severity"].to_list() == ["warning"]
    assert reading.broken == 1


def test_tickets_are_read() -> None:
    """Open ones have no end."""
    reading = parse('node,opened,closed,id,text\ngpu1,2024-01-01,,T-1,"fan, loud"\n,2024-01-01,,T-2,\n')
    assert reading.table.rows() == [
        ("gpu1", at("2024-01-01"), None, "ticket", "T-1", None, None, "fan, loud")
    ]
    assert [one.why for one in reading.told] == ["names no node"]


def test_exclude_lists_give_one_event_per_node() -> None:
    """Jobs that exclude nobody are left out; a list that is none is told."""
    reading = parse(
        "JOBID|EXC_NODES|SUBMIT_TIME\n1|gpu[1-2]|1704067200\n2||\n3|(null)|\n4|gpu[1-|\n5|gpu7|N/A\n6|g|x\n"
    )
    assert reading.table.select("node", "job", "kind", "at").rows() == [
        ("gpu1", "1", "exclusion", at("2024-01-01")),
        ("gpu2", "1", "exclusion", at("2024-01-01")),
        ("gpu7", "5", "exclusion", None),
    ]
    assert (reading.rows, reading.broken, reading.left_out) == (6, 2, 2)


@pytest.mark.parametrize(
    ("line", "node", "time"),
    [
        ("Mar  5 12:34:56 gpu1 kernel: [12.5] NVRM: Xid (PCI:0000:3b:00): {}", "gpu1", "2024-03-05T12:34:56"),
        ("Dec 31 23:59:59 gpu1 kernel: NVRM: Xid (PCI:0000:3b:00): {}", "gpu1", "2023-12-31T23:59:59"),
        ("2024-03-05T12:34:56.5+01:00 gpu1 kernel: NVRM: Xid (PCI:3b): {}", "gpu1", "2024-03-05T11:34:56.5"),
        ("2024-03-05T12:34:56+0000 gpu1 kernel: NVRM: Xid (PCI:3b): {}", "gpu1", "2024-03-05T12:34:56"),
        ("2024-03-05T12:34:56,500000+00:00 NVRM: Xid (PCI:3b): {}", "here", "2024-03-05T12:34:56.5"),
        ("[Tue Mar  5 12:34:56 2024] NVRM: Xid (PCI:0000:3b:00): {}", "here", "2024-03-05T12:34:56"),
    ],
)
@pytest.mark.parametrize(("code", "severity"), [(79, "critical"), (31, "warning")])
def test_xids_are_read_from_logs_of_every_form(
    line: str, node: str, time: str, code: int, severity: str
) -> None:
    """A day without a year is the last such day before the log was written."""
    text = f"some other line\n{line.format(f'{code}, pid=1, GPU has fallen off the bus.')}\n"
    reading = parse_log(text, ORIGIN._replace(node="here"))
    assert reading.table.select("node", "at", "kind", "name", "severity").rows() == [
        (node, at(time), "xid", f"xid {code}", severity)
    ]
    assert reading.rows == 1
    assert reading.table["text"][0].endswith(f": {code}, pid=1, GPU has fallen off the bus.")


def test_lines_about_xids_that_cannot_be_read_are_told() -> None:
    """With what is missing: a number, a time, a node."""
    reading = parse_log(
        "Mar  5 12:34:56 gpu1 kernel: NVRM: Xid (PCI:0000\n"
        "[ 12.5] NVRM: Xid (PCI:0000:3b:00): 79\n"
        "[Tue Mar  5 12:34:56 2024] NVRM: Xid (PCI:0000:3b:00): 79\n"
        "Foo 99 12:34:56 gpu1 kernel: NVRM: Xid (PCI:0000:3b:00): 79\n"
    )
    assert [one.why[:25] for one in reading.told] == [
        "is 'Mar  5 12:34:56 gpu1 ",
        "begins with '[ 12.5] NVRM",
        "names no node, and none i",
        "begins with 'Foo 99 12:34",
    ]


def test_tables_of_other_things_are_refused() -> None:
    """The message lists what each kind needs."""
    with pytest.raises(InputError, match="expected check: node, health_check, result, start_time; ticket: "):
        parse("color,size\nred,4\n")
