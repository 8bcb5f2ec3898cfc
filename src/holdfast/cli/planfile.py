"""What to plan, from flags and from a TOML file with a ``[plan]`` table; a flag replaces the file's value.

Every value knows where it came from, so that what is wrong can be named: the flag, or the file and its key.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, get_args

import msgspec

from holdfast.cli.files import read_text
from holdfast.cli.quantities import to_number
from holdfast.errors import InputError
from holdfast.plan.planner import Mode
from holdfast.plan.problem import Costs, Problem, Worker, make_speeds

SHAPE = ("dp", "pp", "microbatches")
KEYS = (*SHAPE, "dead", "slow", "costs", "comm", "memory", "mode", "migrate", "state-bytes")
MAX_OPS = 5_000_000
"""More operations than this would fill the memory of most machines; 1,536 workers have some 300,000."""
MAX_STAGES = 512
"""Bounds look at every pair of stages; no pipeline is nearly as deep."""

MAX_COUNT = 10**18
"""Larger ones fit into no machine, and into no message."""

MAX_COST = 1e12
MIN_SPEED = 1e-6
"""Beyond these, sums of times would lose what is small beside them."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    problem: Problem
    mode: Mode
    migrate: bool


class Given(NamedTuple):
    """A value as it was written, and where."""

    value: Any
    origin: str
    is_flag: bool = False

    def refuse(self, expected: str) -> NoReturn:
        """Raise what is to be said about it."""
        raise InputError(f"{self.origin} is {_show(self.value)}, expected {expected}")


def gather(flags: Mapping[str, Any], file: Path | None) -> Request:
    """Return what flags and file ask for; the flags are named as the keys of the file are."""
    given = _read(file) if file is not None else {}
    for key, value in flags.items():
        if value not in (None, [], False):
            given[key] = Given(value, f"--{key}", is_flag=True)
    dp, pp, microbatches = (_require_count(given, key) for key in SHAPE)
    if 3 * dp * pp * microbatches > MAX_OPS:
        names = ", ".join(given[key].origin for key in SHAPE)
        ops = f"{3 * dp * pp * microbatches:,} operations (3 x dp x pp x microbatches)"
        raise InputError(f"{names} make {ops}, expected at most {MAX_OPS:,}")
    if pp > MAX_STAGES:
        raise InputError(f"{given['pp'].origin} is {pp:,}, expected at most {MAX_STAGES} stages")
    problem = Problem(
        dp=dp,
        pp=pp,
        microbatches=microbatches,
        costs=_read_costs(given.get("costs"), pp),
        comm=_read_comm(given.get("comm")),
        memory=_per_stage(given["memory"], pp, least=1) if "memory" in given else None,
        speeds=_read_speeds(given, dp, pp),
        state_bytes=_per_stage(given["state-bytes"], pp, least=0) if "state-bytes" in given else (),
    )
    return Request(
        problem=problem,
        mode=_read_mode(given.get("mode")),
        migrate=_read_switch(given.get("migrate")),
    )


# --- the file ---------------------------------------------------------------------------------


def _read(file: Path) -> dict[str, Given]:
    text = read_text(file)
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from error
    except ValueError as error:  # Python reads no number of more than some thousand digits.
        raise InputError(f"{file}: cannot be read: a number has too many digits") from error
    table = content.get("plan")
    if not isinstance(table, dict):
        raise InputError(f"{file}: has no table [plan], expected one with dp, pp and microbatches")
    for key in table:
        if key not in KEYS:
            raise InputError(f"{file}: [plan] has no key {key!r}, expected one of {', '.join(KEYS)}")
    return {key: Given(value, f"{file}: {key}") for key, value in table.items()}


# --- single values ----------------------------------------------------------------------------


def _require_count(given: Mapping[str, Given], key: str) -> int:
    if key not in given:
        raise InputError(f"--{key} is missing, expected a whole number of 1 or more (or {key} in --file)")
    return _read_count(given[key], least=1)


def _read_count(given: Given, *, least: int) -> int:
    count = _to_count(given.value, is_flag=given.is_flag)
    if count is None or count < least:
        given.refuse(f"a whole number of {least} or more")
    if count > MAX_COUNT:
        given.refuse(f"at most {MAX_COUNT:.0e}")
    return count


def _to_count(value: object, *, is_flag: bool) -> int | None:
    """Return a whole number, None for what is none; a string is one in a flag only."""
    if is_flag and isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,4000}", value.strip(), re.ASCII):
        return int(value)
    return value if type(value) is int else None  # True is an int, too.


def _to_number(value: object, *, is_flag: bool) -> float:
    """Return a number, or one that is none for what cannot be read as a number."""
    if is_flag and isinstance(value, str):
        return to_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _read_mode(given: Given | None) -> Mode:
    modes: tuple[Mode, ...] = get_args(Mode)
    if given is None:
        return "adaptive"
    if given.value not in modes:
        given.refuse(f"one of {', '.join(modes)}")
    return modes[modes.index(given.value)]


def _read_switch(given: Given | None) -> bool:
    if given is not None and not isinstance(given.value, bool):
        given.refuse("true or false")
    return given is not None and bool(given.value)


def _read_comm(given: Given | None) -> float:
    if given is None:
        return 0.0
    comm = _to_number(given.value, is_flag=given.is_flag)
    if not 0 <= comm <= MAX_COST:
        given.refuse(f"a number from 0 to {MAX_COST:g}")
    return comm


def _per_stage(given: Given, pp: int, *, least: int) -> tuple[int, ...]:
    """Return one number for each stage; one alone holds for all."""
    values = given.value
    if given.is_flag:
        values = values.split(",")
    if not isinstance(values, list):
        values = [values]
    if len(values) not in (1, pp):
        given.refuse(f"one number, or one for each of {pp} stages")
    if len(values) == 1:
        return (_read_count(given._replace(value=values[0]), least=least),) * pp
    read = [_to_count(value, is_flag=given.is_flag) for value in values]
    counts = tuple(count for count in read if count is not None and least <= count <= MAX_COUNT)
    if len(counts) < pp:
        given.refuse(f"whole numbers from {least} to {MAX_COUNT:.0e}")
    return counts


# --- costs ------------------------------------------------------------------------------------


def _read_costs(given: Given | None, pp: int) -> tuple[Costs, ...]:
    if given is None:
        return ()
    default, stages = _sort_costs(given, pp)
    return tuple(stages.get(stage, default) for stage in range(pp))


def _sort_costs(given: Given, pp: int) -> tuple[Costs, dict[int, Costs]]:
    """Return the costs of all stages, and of those that have their own."""
    entries = _cost_entries(given)
    default, stages = Costs(), dict[int, Costs]()
    for name, numbers in entries:
        costs = _make_costs(numbers)
        if name is None:
            if sum(other is None for other, _ in entries) > 1:
                raise InputError(f"{numbers.origin} gives the costs of all stages twice, expected them once")
            default = costs
            continue
        stage = _read_stage(Given(name, numbers.origin), pp)
        if stage in stages:
            raise InputError(f"{numbers.origin} has stage {stage} twice, expected it once")
        stages[stage] = costs
    return default, stages


def _cost_entries(given: Given) -> list[tuple[str | None, Given]]:
    """Return pairs of a stage, or None for all, and its numbers; in flags they are written differently."""
    if isinstance(given.value, dict):
        return [
            (None if name == "default" else name, Given(numbers, f"{given.origin}.{name}"))
            for name, numbers in given.value.items()
        ]
    if given.is_flag:
        split = [text.rpartition("=") for text in given.value]
        return [(stage if sign else None, given._replace(value=numbers)) for stage, sign, numbers in split]
    return [(None, given)]


def _make_costs(given: Given) -> Costs:
    expected = f"three numbers F,I,W from 0 to {MAX_COST:g}, not all of them 0"
    numbers = given.value.split(",") if given.is_flag else given.value
    if not isinstance(numbers, list) or len(numbers) != 3:
        given.refuse(expected)
    costs = [_to_number(number, is_flag=given.is_flag) for number in numbers]
    if not all(0 <= cost <= MAX_COST for cost in costs) or sum(costs) == 0:
        given.refuse(expected)
    return Costs(*costs)


def _read_stage(given: Given, pp: int) -> int:
    if not re.fullmatch(r"\d{1,9}", str(given.value), re.ASCII) or int(given.value) >= pp:
        raise InputError(f"{given.origin} names the stage {given.value!r}, expected 0 to {pp - 1}")
    return int(given.value)


# --- workers ----------------------------------------------------------------------------------


def _read_speeds(given: Mapping[str, Given], dp: int, pp: int) -> tuple[tuple[float, ...], ...]:
    speeds: dict[Worker, float] = {}
    for worker, speed, origin in [*_read_dead(given.get("dead")), *_read_slow(given.get("slow"))]:
        if not (worker.pipeline < dp and worker.stage < pp):
            last = Worker(dp - 1, pp - 1)
            raise InputError(f"{origin} names the worker {worker}, expected 0.0 to {last} (pipeline.stage)")
        if worker in speeds:
            raise InputError(f"{origin} names the worker {worker}, expected each worker once")
        speeds[worker] = speed
    origins = [given[key].origin for key in ("dead", "slow") if key in given]
    for stage in range(pp):
        if all(speeds.get(Worker(pipeline, stage)) == 0 for pipeline in range(dp)):
            where = " and ".join(origins)
            raise InputError(f"{where}: all {dp} workers of stage {stage} are dead, expected one alive")
    return make_speeds(dp, pp, speeds)


def _read_dead(given: Given | None) -> list[tuple[Worker, float, str]]:
    if given is None:
        return []
    if not isinstance(given.value, list):
        given.refuse('a list of workers, such as ["1.2"]')
    return [(_read_worker(text, given.origin), 0.0, given.origin) for text in given.value]


def _read_slow(given: Given | None) -> list[tuple[Worker, float, str]]:
    if given is None:
        return []
    pairs: Sequence[tuple[Any, Any]]
    if isinstance(given.value, dict):
        pairs = list(given.value.items())
    elif given.is_flag:
        pairs = [_split_slow(Given(text, given.origin)) for text in given.value]
    else:
        given.refuse('a table of workers and speeds, such as {"0.1" = 0.5}')
    found = []
    for text, speed in pairs:
        if isinstance(speed, dict):  # A key written 0.1 without quotes means a table 0 with a key 1.
            _refuse_number(f"{text}.{next(iter(speed), 0)}", given.origin)
        worker = _read_worker(text, given.origin)
        read = _read_speed(Given(speed, f"{given.origin}: the speed of {worker}", given.is_flag))
        found.append((worker, read, given.origin))
    return found


def _split_slow(given: Given) -> tuple[str, str]:
    worker, sign, speed = given.value.partition("=")
    if not sign:
        given.refuse("WORKER=SPEED, such as 0.1=0.5")
    return worker, speed


def _read_speed(given: Given) -> float:
    speed = _to_number(given.value, is_flag=given.is_flag)
    if not (speed == 0 or MIN_SPEED <= speed <= 1):
        given.refuse(f"0 (dead), or {MIN_SPEED:f} to 1 (healthy)")
    return speed


def _read_worker(text: object, origin: str) -> Worker:
    if isinstance(text, int | float) and not isinstance(text, bool) and abs(text) <= MAX_COUNT:
        _refuse_number(_show(text), origin)
    match = re.fullmatch(r"(\d{1,9})\.(\d{1,9})", text, re.ASCII) if isinstance(text, str) else None
    if match is None:
        raise InputError(f"{origin} has {_show(text)}, expected a worker written pipeline.stage, such as 1.2")
    return Worker(int(match[1]), int(match[2]))


def _refuse_number(text: str, origin: str) -> NoReturn:
    raise InputError(
        f'{origin} has the number {text} as a worker, expected a string such as "1.2": '
        "the number 3.10 would be read as 3.1"
    )


def _show(value: object) -> str:
    """Return a value on one line, as it was written rather than as Python would."""
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits.
        return "a value of too many digits to show"
    return text if len(text) <= 60 else f"{text[:57]}..."
