"""Cases made by hand: some ranks in stages, one of them guilty, and traces of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from holdfast.diagnose.case import Case, make_case
from holdfast.diagnose.reduce import Known, WorkerPattern, number_of
from holdfast.observe.kineto import Kind
from holdfast.telemetry import Channel

READ = "<built-in method read of _io.BufferedReader object>"
STACK = [READ, "data/shards.py(118): __getitem__", "train/loop.py(88): next_batch"]
GEMM = "sgemm_128x64"
FUNCTIONS: list[tuple[Kind, list[str], float]] = [
    ("compute", [GEMM], 0.5),
    ("compute", ["flash_fwd_kernel<128, true>"], 0.1),
    ("memory", ["Memcpy HtoD"], 0.02),
    ("collective", ["ncclDevKernel_AllReduce"], 0.1),
    ("python", STACK, 0.02),
]
SLOWER = 0.2


def make_workers(
    functions: Sequence[tuple[Kind, list[str], float]], ranks: Sequence[int], guilty: Sequence[int] = ()
) -> tuple[list[WorkerPattern], dict[int, Known]]:
    """Patterns in which the last function takes longer on some ranks, for which all others wait."""
    known = [Known(kind=kind, stack=stack) for kind, stack, _ in functions]
    rng = np.random.default_rng(5)
    workers = []
    for rank in ranks:
        beta = np.array([share for *_, share in functions]) * np.exp(rng.normal(0, 0.005, len(functions)))
        beta[-1] += SLOWER if rank in guilty else 0.0
        is_waiting = bool(guilty) and rank not in guilty
        beta[[each.kind == "collective" for each in known]] += SLOWER if is_waiting else 0.0
        shares = np.stack([beta, np.full(len(known), 0.8), np.full(len(known), 0.02)], axis=1)
        workers.append(
            WorkerPattern(
                rank=rank,
                span_s=4.0,
                steps=10,
                numbers=np.array([number_of(each) for each in known], np.uint64).tobytes(),
                shares=(shares.clip(0, 1) * 65_535).round().astype(np.uint16).tobytes(),
            )
        )
    return workers, {number_of(each): each for each in known}


def stages(ranks: int, pp: int) -> dict[int, list[Channel]]:
    """Groups of a job in which neighbours are a pipeline."""
    return {
        rank: [
            Channel(
                number=1,
                kind="group",
                name="mesh_pp",
                ranks=list(range(rank // pp * pp, rank // pp * pp + pp)),
            ),
            Channel(number=2, kind="group", name="mesh_dp", ranks=list(range(rank % pp, ranks, pp))),
        ]
        for rank in range(ranks)
    }


def make_staged(
    ranks: int = 16, pp: int = 4, guilty: Sequence[int] = (5,), missing: Sequence[int] = ()
) -> Case:
    """A job in stages."""
    workers, known = make_workers(FUNCTIONS, [rank for rank in range(ranks) if rank not in missing], guilty)
    case = make_case(workers, known, stages(ranks, pp), ranks)
    return on_hosts(case, {rank: f"node{rank // 4}" for rank in range(ranks)})


def on_hosts(case: Case, hosts: Mapping[int, str]) -> Case:
    """The case, with where its ranks are."""
    suspects = [
        msgspec.structs.replace(each, hosts=sorted({hosts[rank] for rank in each.ranks}))
        for each in case.verdict.suspects
    ]
    verdict = msgspec.structs.replace(case.verdict, suspects=suspects)
    return msgspec.structs.replace(case, verdict=verdict, hosts=hosts)


def make_trace(path: Path, read_us: float, steps: int = 5, kernels: int = 40, kernel_name: str = GEMM) -> str:
    """Write a trace in which every step reads, computes, and communicates; return its name."""
    events: list[dict[str, Any]] = []

    def add(name: str, category: str, ts: float, dur: float, **args: Any) -> None:
        events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}
        )

    for step in range(steps):
        at, number = 100_000.0 * step, 10 * step
        add(STACK[2], "python_function", at, 90_000, **{"Python id": number + 1, "Python parent id": None})
        add(
            READ,
            "python_function",
            at + 10,
            read_us,
            **{"Python id": number + 2, "Python parent id": number + 1},
        )
        for kernel in range(kernels):
            add(
                kernel_name.replace("%d", str(kernel)),
                "kernel",
                at + 40_000 + 30_000 / kernels * kernel,
                25_000 / kernels,
            )
        add("ncclDevKernel_AllReduce", "kernel", at + 80_000, 15_000)
        add("Optimizer.step#SGD.step", "user_annotation", at + 98_000, 2_000)
    path.write_text(json.dumps({"traceEvents": events}))
    return str(path)
