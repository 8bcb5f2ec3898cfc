"""A case as a table: functions by ranks in order of role, each beside what is usual for its role."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.diagnose.case import Case
from holdfast.diagnose.layout import find_layout
from holdfast.diagnose.localise import Finding
from holdfast.diagnose.reduce import Known, gather
from holdfast.findings import Suspect
from holdfast.observe.kineto import Kind
from holdfast.serve.casewords import guilty_ranks

OWN: tuple[Kind, ...] = ("compute", "memory", "python")
"""Kinds of work that a rank does itself."""

Floats = npt.NDArray[np.float64]


class RankTable(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the time: a row for each function, a column for each rank."""

    functions: list[Known]
    ranks: list[int]
    roles: list[int]
    share: Floats
    usual: Floats
    """The median of the rank's role, without suspects: of a few, half may have the same fault."""
    is_normal: list[bool]
    """Of each rank, that it is no suspect."""

    def own(self) -> tuple[Floats, Floats]:
        """Return what each rank's own work takes, and the median of its role."""
        rows = [row for row, function in enumerate(self.functions) if function.kind in OWN]
        mine = self.share[rows].sum(axis=0)
        return mine, _medians(mine[None, :], self.roles, self.is_normal)[0]


def tabulate(case: Case) -> RankTable:
    """Return the table of a case; its rows are those that findings name."""
    patterns, functions = gather(case.workers, case.known)
    ranks = patterns.ranks.tolist()
    # As the verdict has it: of ranks that have a profile, whoever else is told of.
    roles = find_layout({rank: case.groups.get(rank, ()) for rank in ranks}).roles
    order = sorted(range(len(ranks)), key=lambda column: (roles[ranks[column]], ranks[column]))
    share = patterns.beta[:, order].astype(np.float64)
    sorted_roles = [roles[ranks[column]] for column in order]
    guilty = set(guilty_ranks(case))
    is_normal = [ranks[column] not in guilty for column in order]
    return RankTable(
        functions=functions,
        ranks=[ranks[column] for column in order],
        roles=sorted_roles,
        share=share,
        usual=_medians(share, sorted_roles, is_normal),
        is_normal=is_normal,
    )


def _medians(values: Floats, roles: Sequence[int], is_normal: Sequence[bool]) -> Floats:
    """Return for every value the median of the normal ranks of its role, of all where none is normal."""
    usual = np.zeros_like(values)
    of_role, normal = np.array(roles, np.int64), np.array(is_normal, np.bool_)
    for role in sorted(set(roles)):
        mine = of_role == role
        counted = mine & normal if (mine & normal).any() else mine
        usual[:, mine] = np.median(values[:, counted], axis=1, keepdims=True)
    return usual


def suspect_rows(case: Case, table: RankTable) -> list[list[int]]:
    """Return the rows that each suspect is blamed for, its own first: by its finding, else by its name."""
    of_name: dict[str, list[int]] = {}
    for row, function in enumerate(table.functions):
        of_name.setdefault(function.name, []).append(row)
    rows = []
    for suspect in case.verdict.suspects:
        mine = of_name.get(suspect.function or "", [])
        finding = _finding_of(suspect, case.verdict.findings)
        if finding is not None and finding.row in mine:
            kind = table.functions[finding.row].kind
            others = [row for row in mine if row != finding.row and table.functions[row].kind == kind]
            # What is common to all counts whoever calls it.
            mine = [finding.row, *others] if finding.what == "common" else [finding.row]
        rows.append(mine)
    return rows


def _finding_of(suspect: Suspect, findings: Sequence[Finding]) -> Finding | None:
    """Return the finding behind a suspect: of its function, and of most of its ranks."""
    ranks = set(suspect.ranks)
    mine = [finding for finding in findings if finding.function == suspect.function]
    return max(mine, key=lambda finding: len(ranks.intersection(finding.ranks)), default=None)


def choose_rows(table: RankTable, first: Iterable[int], most: int) -> list[int]:
    """Return the rows to show: abnormal ones first, then those that take most time."""
    chosen = list(dict.fromkeys(first))
    mean = table.share.mean(axis=1) if table.ranks else np.zeros(len(table.functions))
    rest = [row for row in np.argsort(-mean, kind="stable").tolist() if row not in chosen]
    return [*chosen, *rest][:most]


def choose_columns(table: RankTable, guilty: Collection[int], most: int) -> list[int]:
    """Return the columns to show: all, or the guilty and a sample of the others, in order."""
    everyone = range(len(table.ranks))
    if len(everyone) <= most:
        return list(everyone)
    named = frozenset(guilty)
    mine = [column for column in everyone if table.ranks[column] in named]
    others = [column for column in everyone if table.ranks[column] not in named]
    kept = evenly(mine, max(most // 2, most - len(others)))
    return sorted([*kept, *evenly(others, most - len(kept))])


def evenly(values: Sequence[int], most: int) -> list[int]:
    """Return at most so many of some values, evenly spaced, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    places = np.unique(np.linspace(0, len(values) - 1, most).round().astype(np.int64))
    return [values[place] for place in places.tolist()]
