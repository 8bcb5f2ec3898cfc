"""A small file of every kind that can be read, by name; and short ways to look at what was read."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import polars as pl

from holdfast.reliability.sacct import parse_sacct
from holdfast.reliability.tables import ATTEMPTS, Reading

SACCT = (
    "JobID|JobName|User|Account|Partition|State|Submit|Eligible|Start|End|Elapsed|NNodes|AllocTRES|NodeList\n"
    "1|train|ann|lab|gpu|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T00:01:00|"
    "2024-01-01T01:01:00|01:00:00|2|cpu=8,gres/gpu=16|gpu[1-2]\n"
    "1.batch|batch|||gpu|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T00:01:00|"
    "2024-01-01T01:01:00|01:00:00|2|cpu=8|gpu1\n"
    "2_3|ev\nal|bob|lab|gpu|CANCELLED by 7|2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-02T00:01:00|"
    "Unknown|1-01:00:00|1|cpu=8,gres/gpu=1|gpu3\n"
    "4_[5-9%2]|sweep|bob|lab|gpu|PENDING|2024-01-01T00:00:00|Unknown|Unknown|Unknown|00:00:00|1||"
    "None assigned\n"
)
JSON = (
    '{"meta": {}, "jobs": [{"job_id": 7, "state": {"current": ["FAILED"]}, "time": '
    '{"submission": 1704067200, "start": {"set": true, "infinite": false, "number": 1704067200}, '
    '"end": 1704067300}, "nodes": "gpu1", '
    '"tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 8}]}, "array": {"job_id": 0}}]}'
)
SACCTMGR = (
    "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    "c|gpu1|2024-01-01T00:00:00|2024-01-01T01:00:00|DOWN*|Not responding|slurm\n"
    "c|gpu2|2024-01-01T00:00:00|Unknown|DRAIN|fan|root\n"
)
CHECKS = (
    '{"node":"gpu1","health_check":"check xid","type":"prolog","result":2,"_msg":"x","job_id":5,'
    '"start_time":1704067200.5,"end_time":1704067201}\n'
    '{"node":"gpu2","health_check":"check disk","type":"nagios","result":0,'
    '"start_time":"2024-01-01T00:00:00"}\n'
)
TICKETS = (
    'node,opened,closed,id,text\ngpu1,2024-01-01,2024-01-03 12:00:00,T-1,"fan, loud"\n'
    "gpu2,2024-01-02,,T-2,x\n"
)
EXCLUSIONS = "JOBID|EXC_NODES\n1|gpu[001-004,007]\n2|\n3|gpu9,gpu[10-12]\n"
KERNEL = (
    "Mar  5 12:34:50 gpu1 kernel: eth0: link up\n"
    "Mar  5 12:34:56 gpu1 kernel: [12.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
    "2024-03-05T12:34:56+00:00 gpu2 kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=1\n"
)
LANL = (
    "System,nodes,nodenum,nodenumz,purpose,Prob Started,Prob Fixed,Down Time,Facilities,Hardware,Human Error,"
    "Network,Undetermined,Software,Same Event\n"
    "20,512,1,0,compute,6/1/2003 0:05,6/1/2003 2:11,126,,Memory Dimm,,,,,No\n"
    "20,512,8,7,compute,12/31/2003 23:59,1/1/2004 0:59,60,,,,,,OS,No\n"
)
HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "77,u1,vcA,8,64,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:01:00,2020-04-01 01:01:00,3600,60\n"
)
PHILLY = (
    '[{"status": "Pass", "vc": "v", "jobid": "a_1", "submitted_time": "2017-10-09 07:00:00", "user": "u", '
    '"attempts": [{"start_time": "2017-10-09 07:01:00", "end_time": "None", "detail": [{"ip": "m1", '
    '"gpus": ["gpu0"]}]}]}]'
)
OWN = (
    '{"schema":1,"event_id":"0-1","at":"2026-11-15T20:28:57.698675+00:00","host":"vm","node":0,"attempt":0,'
    '"name":"attempt_started","type":"begin","world_size":2,"nodes":1,"ranks":[0,1],"pids":[1,2]}\n'
    '{"schema":1,"event_id":"0-2","at":"2026-11-15T20:38:57+00:00","host":"vm","node":0,"attempt":0,'
    '"name":"attempt_ended","type":"end","reason":"succeeded","first":null}\n'
)


def parquet() -> bytes:
    """A table of jobs with our own names."""
    buffer = io.BytesIO()
    pl.DataFrame({"job": ["a", "b"], "state": ["FAILED", "COMPLETED"], "gpus": [8, 16]}).write_parquet(buffer)
    return buffer.getvalue()


SAMPLES: dict[str, tuple[str, int, bytes]] = {
    "sacct": ("attempts", 3, SACCT.encode()),
    "sacct, other delimiter": ("attempts", 3, SACCT.replace("|", "|#").encode()),
    "sacct json": ("attempts", 1, JSON.encode()),
    "sacctmgr": ("events", 2, SACCTMGR.encode()),
    "checks": ("events", 2, CHECKS.encode()),
    "tickets": ("events", 2, TICKETS.encode()),
    "exclusions": ("events", 9, EXCLUSIONS.encode()),
    "kernel log": ("events", 2, KERNEL.encode()),
    "failure records": ("outages", 2, LANL.encode()),
    "helios": ("attempts", 1, HELIOS.encode()),
    "philly": ("attempts", 1, PHILLY.encode()),
    "own log": ("attempts", 1, OWN.encode()),
    "parquet": ("attempts", 2, parquet()),
}
"""Which table comes out of it, how many rows that has, and the file."""


def parse(text: str | bytes, **options: Any) -> Reading:
    """Read a text as if it were a file."""
    data = text if isinstance(text, bytes) else text.encode()
    reading = parse_sacct(io.BytesIO(data), "jobs.txt", **options)
    assert reading.table.schema == pl.Schema(ATTEMPTS)
    assert reading.table.height + reading.broken + reading.left_out == reading.rows
    return reading


def cells(reading: Reading, *names: str) -> list[tuple[Any, ...]]:
    """Some columns of all rows."""
    return reading.table.select(names).rows()


def at(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
