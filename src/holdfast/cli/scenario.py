"""What ``holdfast simulate`` was asked for: words from the command line in, a job and a trace out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import msgspec

from holdfast.cli.files import one_line, read_text
from holdfast.cli.quantities import parse_count, parse_duration, parse_positive
from holdfast.errors import InputError
from holdfast.simulate.fitting import Fitted, Rule, fit
from holdfast.simulate.models import MODELS, Model, find_model
from holdfast.simulate.periods import Periods
from holdfast.simulate.strategies import NAMES
from holdfast.simulate.traces import MOST_DAYS, Trace, make_fixed, make_poisson, parse_trace


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed, before anything is checked."""

    trace: Path | None = None
    every: str | None = None
    failures_per_node_day: str | None = None
    repair: str | None = None
    hours: str | None = None
    seed: str = "0"
    fit: str = "share"
    model: str = "gpt3-6.7b"
    microbatches: str | None = None
    memory: str | None = None
    strategies: tuple[str, ...] = ()


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A job, a trace of its workers, and the strategies to compare."""

    model: Model
    microbatches: int
    memory: int | None
    trace: Trace
    fitted: Fitted
    names: tuple[str, ...]

    @property
    def periods(self) -> Periods:
        model = self.model
        return Periods(dp=model.dp, pp=model.pp, microbatches=self.microbatches, memory=self.memory)


def gather(request: Request) -> Scenario:
    """Return what to simulate; everything typed is checked before anything long begins."""
    _check_names("--model", [request.model], [model.name for model in MODELS])
    _check_names("--strategy", request.strategies, NAMES)
    model = find_model(request.model)
    names = request.strategies or NAMES
    rule = _read_rule(request.fit)
    rng = random.Random(parse_count(request.seed, "--seed", least=0, most=2**31))
    with _named(_name_source(request)):
        trace = _make_trace(request, model, rng)
        fitted = fit(trace, model.workers, rng, rule)
    return Scenario(
        model=model,
        microbatches=_read_microbatches(request, model),
        memory=_read_memory(request, model),
        trace=trace,
        fitted=fitted,
        names=tuple(dict.fromkeys(names)),
    )


def _check_names(flag: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"{flag} is {name!r}, expected one of {', '.join(known)}")


def _read_microbatches(request: Request, model: Model) -> int:
    if request.microbatches is None:
        return model.microbatch_choices[0]
    return parse_count(request.microbatches, "--microbatches", least=1, most=4096)


def _read_memory(request: Request, model: Model) -> int | None:
    """Return the cap; the default is what 1F1B needs at its first stage."""
    if request.memory is None:
        return model.pp
    if request.memory == "none":
        return None
    if not request.memory.isdigit():
        raise InputError(f"--memory is {request.memory!r}, expected a number from 1 on, or none")
    return parse_count(request.memory, "--memory", least=1, most=1_000_000)


def _read_rule(word: str) -> Rule:
    for rule in get_args(Rule):
        if rule == word:
            return rule  # type: ignore[no-any-return]
    raise InputError(f"--fit is {word!r}, expected {' or '.join(get_args(Rule))}")


def _name_source(request: Request) -> str:
    """Return the flags or the file that the trace comes from; exactly one kind must be given."""
    sources = (request.trace, request.every, request.failures_per_node_day)
    if sum(source is not None for source in sources) != 1:
        raise InputError("expected exactly one of --trace, --every and --failures-per-node-day")
    if request.failures_per_node_day is None and (request.repair or request.hours):
        raise InputError("--repair and --hours belong to --failures-per-node-day")
    if request.trace is not None:
        return str(request.trace)
    return "--every" if request.every is not None else "--failures-per-node-day, --repair and --hours"


@contextmanager
def _named(source: str) -> Iterator[None]:
    """Say where a trace comes from, if what is wrong with it does not say so itself."""
    try:
        yield
    except InputError as error:
        if str(error).startswith((f"{source}:", "--")):
            raise
        raise InputError(f"{source}: {error}") from error


def _make_trace(request: Request, model: Model, rng: random.Random) -> Trace:
    if request.trace is not None:
        trace = parse_trace(read_text(request.trace), rng)
        return msgspec.structs.replace(trace, origin=f"{one_line(request.trace.name)}: {trace.origin}")
    if request.every is not None:
        return make_fixed(nodes=model.workers, every_s=parse_duration(request.every, "--every"), rng=rng)
    assert request.failures_per_node_day is not None
    return make_poisson(
        nodes=model.workers,
        per_node_day=parse_positive(request.failures_per_node_day, "--failures-per-node-day", most=1e6),
        repair_s=parse_duration(request.repair or "2h", "--repair"),
        duration_s=3600.0 * parse_positive(request.hours or "24", "--hours", most=24 * MOST_DAYS),
        rng=rng,
    )
