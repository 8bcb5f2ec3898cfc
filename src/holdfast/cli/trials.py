"""``holdfast diagnose`` of a trace of operations: what slows the job down, and what it would take without."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from holdfast.cli.files import one_line
from holdfast.diagnose.telling import tell_suspect
from holdfast.diagnose.trial import Trial, judge, what_if
from holdfast.diagnose.wording import name_ranks
from holdfast.errors import InputError
from holdfast.observe.optrace import read_op_trace

_SHOWN = 8


def show_trial(path: Path, fix: str | None, *, as_json: bool) -> None:
    """Read a trace and show who is to blame, or what a step would take with something fixed."""
    trace = read_op_trace(path)
    if fix is not None:
        _show_fix(trace_fix(fix), what_if(trace, trace_fix(fix)), as_json=as_json)
        return
    trial = judge(trace)
    if as_json:
        sys.stdout.write(to_json(trial) + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    for line in to_lines(trial):
        console.print(one_line(line), highlight=False, markup=False, soft_wrap=True)
    console.print(_table(trial))


def trace_fix(text: str) -> str:
    """Return what is to be fixed, from ``fix=rank:5``."""
    if not text.startswith("fix="):
        raise InputError(f"--what-if is {text!r}, expected fix=rank:N, fix=stage:N, fix=dp:N or fix=op:NAME")
    return text.removeprefix("fix=")


def to_json(trial: Trial) -> str:
    """Return the verdict as one document."""
    document = msgspec.to_builtins(trial)
    return msgspec.json.encode({**document.pop("prices"), **document}).decode()


def to_lines(trial: Trial) -> Iterator[str]:
    """Yield the verdict, each suspect with its evidence, and what is not in the trace."""
    prices = trial.prices
    yield (
        f"a step takes {prices.step_s:.4g} s, {prices.slowdown:.3f}x the {prices.ideal_s:.4g} s it would "
        f"take if all did the same work at the same speed ({trial.steps} steps of {len(trial.ranks)} workers)"
    )
    if not trial.suspects:
        yield "nobody is to blame: nothing that could be mended costs 2 % of a step"
    for suspect in trial.suspects:
        yield tell_suspect(suspect)
        yield from (f"    {sentence}" for sentence in suspect.evidence)
    if trial.victims:
        yield f"{name_ranks(trial.victims)} wait for others"
    if trial.missing:
        yield f"missing: no rows of {name_ranks(trial.missing)}"
    if trial.left_out:
        yield f"{len(trial.left_out)} steps have other operations than most, and were left out"


def _table(trial: Trial) -> Table:
    """Return the dearest parts: what a step takes, over the ideal, if only that part is as it is."""
    table = Table(box=None, pad_edge=False)
    for name, justify in (("if only this were as it is", "left"), ("slowdown", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    prices = trial.prices
    parts = {
        **{f"stage {number}": value for number, value in prices.by_stage.items()},
        **{f"pipeline {number}": value for number, value in prices.by_dp.items()},
        **{f"rank {number}": value for number, value in prices.by_rank.items()},
        **prices.by_op,
    }
    for name, value in sorted(parts.items(), key=lambda item: -item[1])[:_SHOWN]:
        table.add_row(name, f"{value:.3f}")
    return table


def _show_fix(fix: str, times: tuple[float, float], *, as_json: bool) -> None:
    now_s, then_s = times
    if as_json:
        found = {
            "fix": fix,
            "step_s": now_s,
            "fixed_s": then_s,
            "slowdown": now_s / then_s if then_s else None,
        }
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return
    sys.stdout.write(f"with {fix} as its peers: {then_s:.4g} s a step instead of {now_s:.4g} s\n")
