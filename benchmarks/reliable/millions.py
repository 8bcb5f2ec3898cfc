"""Millions of attempts as ``sacct -P`` writes them, checks of nodes beside them, and what a report takes.

Sizes, run times and states are those of the simulated cluster's plan; here they are drawn at once, without a
scheduler, so that nodes may be in two jobs at a time. What is counted does not depend on that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from holdfast.simulate.cluster_plan import ClusterPlan

_PIECE = 200_000
_DAYS = 330
_FIRST_S = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp())
_PLAN = ClusterPlan()
_AGAIN = 0.04
"""Of jobs that are started again, and of those again."""
_MIDWAY = (("NODE_FAIL", 0.15), ("PREEMPTED", 0.65), ("REQUEUED", 0.2))
_CHECKS = 20_000
READ_ALL = "import polars; polars.read_csv({path!r}, separator='|', quote_char=None, infer_schema=False)"
READ_ROWS = "import csv\nfor row in csv.reader(open({path!r}), delimiter='|'): pass"


@dataclass(frozen=True)
class Books:
    """Files, and what is in them."""

    sacct: Path
    checks: Path
    attempts: int
    node_fails: int


@dataclass(frozen=True)
class Taken:
    """What a process took."""

    wall_s: float
    cpu_s: float
    memory_gb: float
    out: bytes


def write_books(folder: Path, attempts: int, seed: int) -> Books:
    """Write the attempts in pieces, and checks: some at nodes that failed, most at any."""
    rng = np.random.default_rng(seed)
    sacct, checks = folder / "sacct.txt", folder / "checks.csv"
    written, job, node_fails = 0, 1, 0
    failed = []
    with sacct.open("wb") as stream:
        while written < attempts:
            drawn = _draw(rng, min(_PIECE, attempts - written), job)
            _as_sacct(drawn).write_csv(stream, separator="|", include_header=not written, quote_style="never")
            gone = drawn.filter(pl.col("state") == "NODE_FAIL")
            failed.append(gone.select("first", "end"))
            written, job, node_fails = (
                written + drawn.height,
                job + drawn["job"].n_unique(),
                node_fails + gone.height,
            )
    _write_checks(checks, pl.concat(failed), rng)
    return Books(sacct, checks, written, node_fails)


def _draw(rng: np.random.Generator, attempts: int, first_job: int) -> pl.DataFrame:
    is_again = rng.random(attempts) < _AGAIN
    is_again[0] = False
    job = first_job + np.cumsum(~is_again) - 1
    is_last = np.append(~is_again[1:], True)
    jobs = int(job[-1]) - first_job + 1
    size = rng.choice(len(_PLAN.sizes), jobs, p=_shares([each.share for each in _PLAN.sizes]))[
        job - first_job
    ]
    mean_h = np.array([each.mean_h for each in _PLAN.sizes])[size]
    hours = np.minimum(168.0, rng.lognormal(np.log(mean_h) - _PLAN.spread**2 / 2, _PLAN.spread))
    ends = _words(rng, _PLAN.outcomes, attempts), _words(rng, _MIDWAY, attempts)
    gpus = np.array([each.gpus for each in _PLAN.sizes])[size]
    nodes = -(-gpus // _PLAN.gpus_per_node)
    table = pl.DataFrame(
        {
            "job": job,
            "gpus": gpus,
            "nodes": nodes,
            "first": rng.integers(0, _PLAN.nodes - nodes + 1),
            "length": np.maximum(1, 3600 * hours).astype(np.int64),
            "state": np.where(is_last, *ends),
            "submit": _FIRST_S + rng.integers(0, _DAYS * 86_400, jobs)[job - first_job],
            "wait": rng.exponential(600.0, attempts).astype(np.int64),
            "user": rng.integers(0, 400, attempts),
        }
    )
    # Of a job that is started again, each attempt waits for the end of the one before.
    end = pl.col("submit") + (pl.col("wait") + pl.col("length")).cum_sum().over("job")
    return table.with_columns(end=end).with_columns(start=pl.col("end") - pl.col("length"))


def _shares(weights: Sequence[float]) -> Any:
    return np.asarray(weights) / sum(weights)


def _words(rng: np.random.Generator, words: Sequence[tuple[str, float]], count: int) -> Any:
    names, weights = zip(*words, strict=True)
    return np.array(names)[rng.choice(len(names), count, p=_shares(weights))]


def _as_sacct(drawn: pl.DataFrame) -> pl.DataFrame:
    def digits(value: pl.Expr, count: int) -> pl.Expr:
        return value.cast(pl.String).str.zfill(count)

    def at(name: str) -> pl.Expr:
        return pl.from_epoch(name).dt.strftime("%Y-%m-%dT%H:%M:%S")

    length, first, nodes = (pl.col(name) for name in ("length", "first", "nodes"))
    clock = pl.format(
        "{}:{}:{}", digits(length // 3600 % 24, 2), digits(length // 60 % 60, 2), digits(length % 60, 2)
    )
    tres = pl.format(
        "billing={},cpu={},gres/gpu={},node={}", pl.col("gpus"), 12 * pl.col("gpus"), "gpus", "nodes"
    )
    is_cancelled = pl.col("state") == "CANCELLED"
    span = pl.format("rsc[{}-{}]", digits(first, 4), digits(first + nodes - 1, 4))
    return drawn.select(
        JobID="job",
        JobName=pl.format("train-{}", pl.col("job") % 5000),
        User=pl.format("u{}", "user"),
        Account=pl.format("team{}", pl.col("user") % 20),
        Partition=pl.lit("learn"),
        QOS=pl.when(pl.col("gpus") >= 256).then(pl.lit("high")).otherwise(pl.lit("normal")),
        Priority=pl.col("gpus") + 1000,
        State=pl.when(is_cancelled).then(pl.format("CANCELLED by {}", "user")).otherwise("state"),
        Submit=at("submit"),
        Eligible=at("submit"),
        Start=at("start"),
        End=at("end"),
        Elapsed=pl.when(length >= 86_400).then(pl.format("{}-{}", length // 86_400, clock)).otherwise(clock),
        NNodes="nodes",
        AllocTRES=tres,
        ReqTRES=tres,
        NodeList=pl.when(nodes == 1).then(pl.format("rsc{}", digits(first, 4))).otherwise(span),
    )


def _write_checks(path: Path, failed: pl.DataFrame, rng: np.random.Generator) -> None:
    """Write a check for half of the nodes that failed, a minute later, and others that mean nothing."""
    seen = failed.filter(pl.Series(rng.random(failed.height) < 0.5))
    node = np.concatenate([seen["first"].to_numpy(), rng.integers(0, _PLAN.nodes, _CHECKS)])
    at_s = np.concatenate([seen["end"].to_numpy() + 60, _FIRST_S + rng.integers(0, _DAYS * 86_400, _CHECKS)])
    pl.DataFrame({"node": node, "at": at_s}).select(
        node=pl.format("rsc{}", pl.col("node").cast(pl.String).str.zfill(4)),
        check=pl.lit("check ib link"),
        result=pl.lit("2"),
        timestamp=pl.from_epoch("at").dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
    ).write_csv(path)


def run(arguments: Sequence[str]) -> Taken:
    """Run Python with these arguments, and say what it took."""
    began_s = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)}: exit code {process.returncode}")
    return Taken(time.perf_counter() - began_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20, out)


def report(books: Books, page: Path) -> tuple[Taken, bool]:
    """Make the full report of them, and say whether it has counted all that was written."""
    words = ["-m", "holdfast.cli", "reliability", "report", str(books.sacct), str(books.checks)]
    taken = run([*words, "--out", str(page), "--json"])
    found = json.loads(taken.out)
    states = {row["state"]: row["attempts"] for row in found["jobs"]["statuses"]}
    is_whole = found["jobs"]["attempts"] == books.attempts and states["NODE_FAIL"] == books.node_fails
    return taken, is_whole and not any(source["broken"] for source in found["sources"])
