"""A trace of operations judged as a whole: how slow, who is to blame, who waits, who is not in it."""

from __future__ import annotations

import msgspec
import numpy as np

from holdfast.diagnose.opsuspects import find_suspects
from holdfast.diagnose.replay import Steps, lay_out
from holdfast.diagnose.whatif import Slowdowns, fixed_s, price
from holdfast.errors import InputError
from holdfast.findings import Suspect
from holdfast.observe.optrace import OpTrace

_WAITS = 0.05
"""Of a step, from which on a worker is said to wait."""
_PARTS = ("rank", "dp", "stage", "op")


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace says."""

    prices: Slowdowns
    suspects: list[Suspect]
    victims: list[int]
    missing: list[int]
    """Ranks of which there is no row, as far as the others' numbers tell."""
    ranks: list[int]
    steps: int
    left_out: list[int]
    """Steps with other operations than most: not looked at."""


def judge(trace: OpTrace) -> Trial:
    """Return the verdict; InputError if it cannot have happened like that."""
    steps = _lay_out(trace)
    suspects = find_suspects(steps, trace.ranks)
    guilty = {rank for suspect in suspects for rank in suspect.ranks}
    return Trial(
        prices=price(steps, trace.ranks),
        suspects=suspects,
        victims=[rank for rank in _waiting(steps, trace.ranks) if rank not in guilty] if suspects else [],
        missing=_missing(trace.ranks),
        ranks=sorted(trace.ranks.values()),
        steps=len(steps.steps),
        left_out=steps.left_out,
    )


def what_if(trace: OpTrace, fix: str) -> tuple[float, float]:
    """Return how long a step takes, and how long it would; ``fix`` is such as ``rank:5`` or ``stage:3``."""
    part, _, name = fix.partition(":")
    if part not in _PARTS or not name:
        raise InputError(
            f"--what-if fix={fix}: expected fix= and {', '.join(f'{each}:…' for each in _PARTS)}"
        )
    steps = _lay_out(trace)
    parts = [
        {"rank": trace.ranks[op.dp, op.stage], "dp": op.dp, "stage": op.stage, "op": op.name}[part]
        for op in steps.ops
    ]
    mask = np.array([str(each) == name for each in parts])
    if not mask.any():
        known = sorted({str(each) for each in parts}, key=lambda text: (len(text), text))
        raise InputError(f"--what-if fix={fix}: no such {part}, expected one of {', '.join(known)}")
    return float(steps.play(steps.moved_s).mean()), float(steps.play(fixed_s(steps, mask)).mean())


def _lay_out(trace: OpTrace) -> Steps:
    try:
        return lay_out(trace)
    except ValueError as error:
        raise InputError(f"{error}: the clocks of the workers do not agree") from error


def _waiting(steps: Steps, ranks: dict[tuple[int, int], int]) -> list[int]:
    """Return who spends much of a step in transfers that others have not come to yet."""
    step_s = float(steps.play(steps.moved_s).mean())
    waited_s = (steps.duration_s - steps.moved_s).mean(axis=1)
    found = []
    for place, rank in ranks.items():
        mine = (steps.dps == place[0]) & (steps.stages == place[1])
        if waited_s[mine].sum() > _WAITS * step_s:
            found.append(rank)
    return sorted(found)


def _missing(ranks: dict[tuple[int, int], int]) -> list[int]:
    """Return the ranks of places that nothing is known of, if ranks follow from places."""
    places = np.array(list(ranks), float)
    grid = [
        (dp, stage)
        for dp in range(int(places[:, 0].max()) + 1)
        for stage in range(int(places[:, 1].max()) + 1)
    ]
    absent = [place for place in grid if place not in ranks]
    if not absent:
        return []
    known = np.column_stack([places, np.ones(len(places))])
    numbers = np.array(list(ranks.values()), float)
    rule, *_ = np.linalg.lstsq(known, numbers, rcond=None)
    if np.abs(known @ rule - numbers).max() > 1e-6:
        return []
    return sorted(round(float(np.array([*place, 1.0]) @ rule)) for place in absent)
