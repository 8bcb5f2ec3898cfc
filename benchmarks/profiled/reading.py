"""How fast traces are read: ours, Python's json, and HTA where it is installed; each in a process."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common import progress, show

STEPS = 1500
"""Some 150,000 events."""
REPEATS = 3

OURS = """
from pathlib import Path
from holdfast.observe.kineto import read_trace
count = read_trace(Path({path!r})).events
"""
PLAIN = """
import json
count = len(json.load(open({path!r}))["traceEvents"])
"""
HTA = """
import logging
logging.disable(logging.CRITICAL)
from hta.common.trace import Trace
trace = Trace(trace_files={{0: {path!r}}}, trace_dir="")
trace.parse_traces(use_multiprocessing=False)
count = len(trace.get_trace(0))
"""
TIMED = """
import sys, time
began = time.process_time()
{code}
print(count, time.process_time() - began)
"""


def report(*, as_json: bool) -> None:
    """Read the same trace in all ways and print events per second of one core."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank_0.json"
        events = write_trace(path)
        ways = {"holdfast": OURS, "Python's json, not understood": PLAIN}
        if find_spec("hta") is not None:
            ways["HTA"] = HTA
        with progress() as bar:
            speeds = {
                name: max(_speed(code, path, events) for _ in range(1 if name == "HTA" else REPEATS))
                for name, code in bar.track(ways.items(), description="readers")
            }
    rows: list[dict[str, Any]] = [
        {"reader": name, "events/s": round(speed), "of ours": speed / speeds["holdfast"]}
        for name, speed in speeds.items()
    ]
    notes = [f"{events} events with stacks; the best of {REPEATS} (HTA once), CPU time of one core"]
    if "HTA" not in ways:
        notes.append("HTA is not installed here: pip install HolisticTraceAnalysis")
    show("Reading traces of torch's profiler", rows, notes, as_json=as_json)


def _speed(code: str, path: Path, events: int) -> float:
    program = TIMED.format(code=code.format(path=str(path)))
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
    )
    return events / float(done.stdout.split()[-1])


def write_trace(path: Path) -> int:
    """Write a trace as torch does, of a device's kernels, its launches, and Python with its callers."""
    rng = random.Random(0)
    events: list[dict[str, Any]] = []
    at = 1_000_000.0
    call = 0
    for step in range(STEPS):
        began = at
        for layer in range(16):
            call += 1
            lasted = rng.uniform(20, 60)
            python = {
                "Python id": call,
                "Python parent id": call - 1 if layer else None,
                "Python module id": 0,
            }
            launch = {"External id": call, "correlation": call, "cbid": 211}
            kernel = {"stream": 7, "correlation": call, "device": 0, "External id": call}
            events += [
                _event("python_function", f"model.py({layer}): forward", (1, 1), (at, lasted), python),
                _event("cpu_op", "aten::addmm", (1, 1), (at + 1, lasted / 2), {"External id": call}),
                _event("cuda_runtime", "cudaLaunchKernel", (1, 1), (at + 2, 5.0), launch),
                _event("kernel", f"ampere_sgemm_{layer % 4}", (0, 7), (at + 10, lasted), kernel),
                {"ph": "s", "id": call, "pid": 1, "tid": 1, "ts": at + 2, "cat": "ac2g", "name": "ac2g"},
                {
                    "ph": "f",
                    "id": call,
                    "pid": 0,
                    "tid": 7,
                    "ts": at + 10,
                    "cat": "ac2g",
                    "name": "ac2g",
                    "bp": "e",
                },
            ]
            at += lasted
        events.append(
            _event(
                "user_annotation", f"ProfilerStep#{step}", (1, 1), (began, at - began), {"External id": call}
            )
        )
    document = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
        "deviceProperties": [{"id": 0, "name": "a device", "totalGlobalMem": 1}],
        "traceEvents": events,
    }
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt") as stream:
        json.dump(document, stream)
    return len(events)


def _event(
    category: str, name: str, where: tuple[int, int], when: tuple[float, float], args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": where[0],
        "tid": where[1],
        "ts": round(when[0], 3),
        "dur": round(when[1], 3),
        "args": args,
    }
