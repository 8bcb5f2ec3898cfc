"""Whether the commit protocol survives every failure at every moment: all states of small jobs, one by one.

In each state every set of workers dies that leaves each stage alive, and after that any others while some of
the survivors have moved to what was agreed on and some have not. Something must be agreed on, everybody must
be able to get there, and all must then have what a run without failures has. Rows that leave out a part of
the protocol say what that part is good for. Workers of a stage that both have work, or both have none, can
trade places, so states that differ by that are one. ``--quick`` takes only jobs of 2x2.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, combinations, combinations_with_replacement, product
from pathlib import Path
from typing import Any, NamedTuple

import common
from holdfast.commit import agree

# The tests have the model, and run a part of this.
sys.path.append(str(Path(__file__).parents[1] / "tests"))

from commitmodel import (
    STEPS,
    At,
    Case,
    Lack,
    Phase,
    Scope,
    Survivor,
    Trouble,
    find_wrong,
    moved,
    moves,
    survivor,
)

SHAPES = ((2, 2), (3, 2), (2, 3))
MODES = {"staggered": 0, "staggered after a step": 1, "synchronous": STEPS}
LACKS: tuple[Lack | None, ...] = (None, "barrier", "shadow", "verdict", "tally")
State = tuple[tuple[int, ...], ...]
"""Stage by stage the numbers of the workers' records, in order."""


class Result(NamedTuple):
    """What was found in all states of some cases."""

    states: int
    pairs: int
    """Of a state and a set of deaths that leaves each stage alive."""
    wrong: Counter[str]
    """What went wrong, and in how many pairs (or states, without a failure); nothing, if all is well."""


def main() -> None:
    """Enumerate and print."""
    parser = common.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="only jobs of two pipelines with two stages")
    options = parser.parse_args()
    shapes = SHAPES[:1] if options.quick else SHAPES
    makers: list[Callable[[], dict[str, Any]]] = [partial(_row, *shape, "whole") for shape in shapes]
    makers += [partial(_row, 2, 2, f"no {lack}", lack) for lack in LACKS[1:]]
    with common.progress() as progress:
        rows = [make() for make in progress.track(makers)]
    notes = ["A job begins at each version, with all of its workers or with any number left of each stage."]
    common.show("Commit: every failure in every state", rows, notes, as_json=options.json)


def _row(dp: int, pp: int, protocol: str, lacks: Lack | None = None) -> dict[str, Any]:
    cases = list(all_cases(dp, pp, lacks))
    found = [explore(case) for case in cases]
    wrong = sum((result.wrong for result in found), Counter[str]())
    return {
        "shape": f"{dp}x{pp}",
        "protocol": protocol,
        "cases": len(cases),
        "states": sum(result.states for result in found),
        "states_and_deaths": sum(result.pairs for result in found),
        "violations": wrong.total(),
    }


def all_cases(dp: int, pp: int, lacks: Lack | None = None) -> Iterator[Case]:
    """Return every case of a shape: who is left, who has no work, mode, trouble, first version.

    The model treats all stages alike, so that it does not matter which of them has lost how many.
    """
    troubles = [Trouble(kind, stage) for kind in ("clip", "skip", "void") for stage in (None, *range(pp))]
    troubles += [Trouble(), Trouble("void", None, 0)]
    for sizes in combinations_with_replacement(range(1, dp + 1), pp):
        for idle in (None, *(stage for stage in range(pp) if sizes[stage] > 1)):
            work = tuple((stage != idle,) + (True,) * (size - 1) for stage, size in enumerate(sizes))
            for mode, trouble, start in product(MODES.values(), troubles, range(STEPS)):
                is_past = trouble.kind != "plain" and start > trouble.step
                is_as_staggered = 0 < mode <= start
                if not (is_past or is_as_staggered):
                    yield Case(work, mode, trouble, start, lacks)


def explore(case: Case) -> Result:
    """Visit every state that can be reached, and let every set of workers die in each."""
    return _Explorer(case).explore()


class _Explorer:
    """Walks through the states of a case; records are numbered, because numbers are quick to compare."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.records: list[At] = []
        self._numbers: dict[At, int] = {}
        self._moves: dict[int, list[tuple[Scope, int, int]]] = {}
        self._survivors: dict[int, Survivor] = {}
        self._reports: dict[int, int] = {}
        self._by_reports: dict[State, Counter[str]] = {}
        self._by_left: dict[frozenset[int], str | None] = {}
        self._by_unmoved: dict[tuple[str, tuple[int, ...]], str | None] = {}

    def number(self, at: At) -> int:
        """Return the number of a record, a new one if it was never seen."""
        if at not in self._numbers:
            self._numbers[at] = len(self.records)
            self.records.append(at)
        return self._numbers[at]

    def explore(self) -> Result:
        begin = tuple(
            tuple(sorted(self.number(self.case.begin(stage, has_work=has_work)) for has_work in row))
            for stage, row in enumerate(self.case.work)
        )
        seen, todo, wrong = {begin}, [begin], Counter[str]()
        while todo:
            state = todo.pop()
            after = set(self._next(state))
            todo += after - seen
            seen |= after
            wrong.update(self._failures(state))
            wrong.update(self._missteps(state, is_last=not after))
        deaths = math.prod(2 ** len(row) - 1 for row in begin)
        return Result(len(seen), len(seen) * deaths, wrong)

    # --- going on ---------------------------------------------------------------------------------

    def _next(self, state: State) -> Iterator[State]:
        least = [min(self.records[number].position for number in row) for row in state]
        working = min(at.position for at in self._all(state) if at.has_work)
        for stage, row in enumerate(state):
            reached = {"self": math.inf, "stage": least[stage], "working": working, "world": min(least)}
            for place, number in enumerate(row):
                for scope, position, after in self._moves_of(number):
                    if reached[scope] >= position:
                        new = tuple(sorted((*row[:place], after, *row[place + 1 :])))
                        yield (*state[:stage], new, *state[stage + 1 :])

    def _all(self, state: State) -> list[At]:
        return [self.records[number] for row in state for number in row]

    def _moves_of(self, number: int) -> list[tuple[Scope, int, int]]:
        if number not in self._moves:
            found = moves(self.case, self.records[number])
            self._moves[number] = [(move.scope, move.position, self.number(move.after)) for move in found]
        return self._moves[number]

    def _missteps(self, state: State, *, is_last: bool) -> Iterator[str]:
        """Say what is wrong with a state without any failure; positions grow, so an end is always met."""
        ideal = self.case.ideal
        if any(at.phase >= Phase.REDUCING and at.history != ideal[: at.version] for at in self._all(state)):
            yield "a gradient is reduced that was made from a wrong state"
        if is_last and any(at.history != ideal or at.is_ahead for at in self._all(state)):
            yield "nobody can go on"

    # --- failing ----------------------------------------------------------------------------------

    def _failures(self, state: State) -> Counter[str]:
        """Return what goes wrong over all sets of deaths; it depends only on what would be reported."""
        reports = tuple(tuple(sorted(self._report_of(number) for number in row)) for row in state)
        if reports not in self._by_reports:
            rows = [[each for each in _subsets(row) if each] for row in reports]
            found = (self._failure(frozenset(chain(*left))) for left in product(*rows))
            self._by_reports[reports] = Counter(wrong for wrong in found if wrong)
        return self._by_reports[reports]

    def _report_of(self, number: int) -> int:
        if number not in self._reports:
            self._reports[number] = self.number(_visible(self.records[number]))
        return self._reports[number]

    def _failure(self, left: frozenset[int]) -> str | None:
        """Say what goes wrong when these are left; of workers who are alike, one is enough."""
        if left not in self._by_left:
            wrong = find_wrong(self.case, self._survivors_of(sorted(left)))
            self._by_left[left] = wrong or self._second_failure(sorted(left))
        return self._by_left[left]

    def _second_failure(self, left: list[int]) -> str | None:
        """Say what goes wrong when only some have moved, and more die.

        Those who have moved are alike, and may be of any stage: so any of the others may be left with them.
        """
        standings = {number: self._survivor_of(number).standing for number in left}
        agreement = agree(standings, stages=self.case.pp)
        assert agreement is not None, "what can be agreed on was checked before"
        for unmoved in _subsets(tuple(left)):
            key = (str(agreement), unmoved)
            if key not in self._by_unmoved:
                survivors = [*self._survivors_of(unmoved), moved(self.case, agreement)]
                self._by_unmoved[key] = find_wrong(self.case, survivors)
            if wrong := self._by_unmoved[key]:
                return f"while recovering: {wrong}"
        return None

    def _survivors_of(self, numbers: Iterable[int]) -> list[Survivor]:
        return [self._survivor_of(number) for number in numbers]

    def _survivor_of(self, number: int) -> Survivor:
        if number not in self._survivors:
            self._survivors[number] = survivor(self.case, self.records[number])
        return self._survivors[number]


def _visible(at: At) -> At:
    """Return the record with only what shows in a failure."""
    return at._replace(has_work=True, attempt=0, phase=Phase.COMPUTING, is_held=False)


def _subsets(numbers: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(numbers, count) for count in range(len(numbers) + 1))


if __name__ == "__main__":
    main()
