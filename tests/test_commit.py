"""When an update counts, and that the protocol survives every failure at every moment."""

from __future__ import annotations

import math
import random
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commit import all_cases, explore
from commitmodel import Case, Lack, Trouble
from holdfast.commit import Agreement, Standing, Tally, Verdict, agree, judge, merge

PLAIN = {0: 0.01, 1: 0.01}


def tally(squares: dict[int, float], *, overflow: int | None = None) -> Tally:
    """Return what these stages found out."""
    return Tally(squares=squares, overflows={stage: stage == overflow for stage in squares})


# --- tallies and verdicts ---------------------------------------------------------------------


def test_tallies_of_stages_make_a_whole() -> None:
    """What every stage knows is joined; losses come from whoever knows them."""
    first = Tally(squares={0: 1.0}, overflows={0: False})
    last = Tally(squares={1: 4.0}, overflows={1: True}, losses=[2.0, 3.0])
    whole = Tally(squares={0: 1.0, 1: 4.0}, overflows={0: False, 1: True}, losses=[2.0, 3.0])
    assert merge([first, last]) == merge([last, first, first]) == whole
    assert merge([whole, first]) == whole
    assert merge([]) == Tally()


def test_tally_is_complete_when_every_stage_has_spoken() -> None:
    """One of two stages is not enough."""
    assert not tally({1: 1.0}).is_complete(2)
    assert tally({1: 1.0, 0: 1.0}).is_complete(2)


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=6), st.randoms())
def test_norm_does_not_depend_on_who_spoke_first(squares: list[float], rng: random.Random) -> None:
    """The sum is made in the order of the stages, to the last bit."""
    stages = list(enumerate(squares))
    shuffled = rng.sample(stages, len(stages))
    assert Tally(squares=dict(shuffled)).norm == Tally(squares=dict(stages)).norm


def test_loss_is_the_mean() -> None:
    """Every micro-batch counts the same."""
    assert Tally(losses=[1.0, 2.0, 6.0]).loss == 3.0


VERDICTS = [
    (tally(PLAIN), 1.0, Verdict()),
    (tally({0: 0.36, 1: 0.64}), 1.0, Verdict()),
    (tally({0: 9.0, 1: 16.0}), 1.0, Verdict(scale=1.0 / (5.0 + 1e-6))),
    (tally({0: 9.0, 1: 16.0}), None, Verdict()),
    (tally({0: math.inf, 1: 1.0}), 1.0, Verdict(scale=0.0)),
    (tally({0: math.nan, 1: 1.0}), None, Verdict(scale=0.0)),
    (tally({0: 1e308, 1: 1e308}), None, Verdict(scale=0.0)),
    (tally({0: math.inf, 1: 1.0}, overflow=1), 1.0, Verdict(is_void=True)),
    (tally({1: 16.0}), 1.0, Verdict(scale=1.0 / (4.0 + 1e-6))),
    (Tally(), 1.0, Verdict()),
]


@pytest.mark.parametrize(("found", "max_norm", "verdict"), VERDICTS)
def test_verdict_follows_from_the_tally(found: Tally, max_norm: float | None, verdict: Verdict) -> None:
    """Overflow voids a step, what is not finite skips it, a norm above the limit is scaled down to it."""
    assert judge(found, max_norm=max_norm) == verdict


def test_only_a_verdict_that_changes_nothing_is_plain() -> None:
    """An update applied ahead stands only if it was not scaled, skipped or void."""
    verdicts = [Verdict(), Verdict(scale=0.5), Verdict(scale=0.0), Verdict(is_void=True)]
    assert [verdict.is_plain for verdict in verdicts] == [True, False, False, False]


@given(
    st.lists(st.floats(0, 1e30), min_size=2, max_size=4),
    st.none() | st.floats(1e-3, 1e12),
    st.integers(0, 3),
)
def test_what_is_bad_in_one_stage_is_bad_in_all(
    squares: list[float], max_norm: float | None, stage: int
) -> None:
    """A stage that holds its update back because its own norm is too large is never wrong about it."""
    own = tally({stage % len(squares): squares[stage % len(squares)]})
    if not judge(own, max_norm=max_norm).is_plain:
        assert not judge(tally(dict(enumerate(squares))), max_norm=max_norm).is_plain


# --- agreeing ---------------------------------------------------------------------------------

OWN = {stage: Tally(squares={stage: 0.01}, overflows={stage: False}) for stage in range(2)}
WHOLE = merge(OWN.values())
VOID = tally({0: 0.01}, overflow=0)


def prepared(stage: int, version: int) -> Standing:
    """Return a worker that could apply a step."""
    return Standing(version=version, is_prepared=True, tallies={version: OWN[stage]})


def prepared_after(stage: int, version: int) -> Standing:
    """Return one that was prepared after it had loaded."""
    return Standing(version=version, is_prepared=True, tallies={version: OWN[stage]}, acts=1)


def ahead(stage: int, version: int) -> Standing:
    """Return a worker that has applied a step before its verdict."""
    return Standing(version=version, has_shadow=True, tallies={version - 1: OWN[stage]})


AGREEMENTS = {
    "all begin": ([Standing(version=0)] * 2, Agreement(version=0)),
    "all have loaded a checkpoint": ([Standing(version=7)] * 2, Agreement(version=7)),
    "all are prepared": ([prepared(0, 3), prepared(1, 3)], Agreement(version=4, tally=WHOLE)),
    "one is ahead": ([ahead(0, 4), prepared(1, 3)], Agreement(version=4, tally=WHOLE)),
    "all are ahead": ([ahead(0, 4), ahead(1, 4)], Agreement(version=4, tally=WHOLE)),
    "one is ahead of one that computes the first step": (
        [ahead(0, 1), Standing(version=0)],
        Agreement(version=0),
    ),
    "a peer is not prepared": (
        [prepared(0, 3), Standing(version=3), Standing(version=3)],
        Agreement(version=3),
    ),
    "one goes back, and the step before is known": (
        [
            Standing(version=4, has_shadow=True, tallies={2: WHOLE, 3: OWN[0]}),
            Standing(version=3, tallies={2: WHOLE}),
        ],
        Agreement(version=3, tally=WHOLE),
    ),
    "the step that one is ahead with is void": (
        [ahead(1, 4), Standing(version=3, tallies={3: VOID})],
        Agreement(version=3),
    ),
    "a void step is never applied": (
        [prepared(1, 3), Standing(version=3, is_prepared=True, tallies={3: VOID})],
        Agreement(version=3),
    ),
    "one has loaded, and has gone on": (
        [prepared_after(0, 3), Standing(version=0, outcome=3)],
        Agreement(version=3, acts=1),
    ),
    "nobody has loaded yet": (
        [Standing(version=0, outcome=3), Standing(version=0)],
        Agreement(version=0),
    ),
    "two steps apart": ([Standing(version=5), Standing(version=3)], None),
    "two steps apart, shadow and gradient": (
        [Standing(version=5, has_shadow=True, tallies={3: WHOLE, 4: OWN[0]}), prepared(1, 3)],
        Agreement(version=4, tally=WHOLE),
    ),
    "a gradient without what other stages found": ([ahead(0, 5), prepared(1, 3)], None),
    "a stage that nobody knows about": ([prepared(0, 3), prepared(0, 3)], Agreement(version=3)),
}


@pytest.mark.parametrize("name", AGREEMENTS)
def test_survivors_agree_on_the_highest_version_they_can_reach(name: str) -> None:
    """They go back by a shadow or forward by a gradient whose tally is whole, whoever speaks first."""
    standings, agreement = AGREEMENTS[name]
    assert agree(dict(enumerate(standings)), stages=2) == agreement
    assert agree(dict(enumerate(reversed(standings))), stages=2) == agreement


def test_reachable_is_one_step_each_way() -> None:
    """A shadow leads back, a gradient forward."""
    assert Standing(version=4).reachable == {4}
    assert Standing(version=4, has_shadow=True).reachable == {3, 4}
    assert Standing(version=4, is_prepared=True).reachable == {4, 5}
    assert Standing(version=4, is_prepared=True, has_shadow=True).reachable == {3, 4, 5}


# --- every failure in every state -------------------------------------------------------------

FULL = [
    list(cases)
    for _, cases in groupby(
        (case for case in all_cases(2, 2) if sum(map(len, case.work)) == 4 and case.start == 0),
        key=lambda case: (case.work, case.staggered_from),
    )
]
LATER = [case for case in all_cases(2, 2) if sum(map(len, case.work)) == 3 and case.start == 1]


@pytest.mark.parametrize("cases", FULL, ids=lambda cases: f"{cases[0].work}-{cases[0].staggered_from}")
def test_every_failure_in_every_state_ends_well(cases: list[Case]) -> None:
    """Whoever dies whenever, the rest agrees, gets there, and has what a run without failures has."""
    found = {case: explore(case) for case in cases}
    assert {case: result.wrong for case, result in found.items() if result.wrong} == {}
    assert min(result.states for result in found.values()) > 100


def test_those_who_are_left_survive_the_next_failure() -> None:
    """The same holds for three workers that begin at a version which was agreed on."""
    assert {case: result.wrong for case in LATER if (result := explore(case)).wrong} == {}


@pytest.mark.parametrize("lacks", ["shadow", "verdict", "tally"])
def test_each_part_of_the_protocol_is_needed(lacks: Lack) -> None:
    """Without shadows, without waiting for verdicts, or where a tally is forgotten, failures end badly."""
    assert explore(Case(((False, True), (True, True)), lacks=lacks)).wrong


def test_a_correction_is_lost_without_its_verdict() -> None:
    """Whoever goes on without a verdict trains from a state that has to be taken back."""
    wrong = explore(Case(((True, True),) * 2, trouble=Trouble("clip"), lacks="verdict")).wrong
    assert wrong["a gradient is reduced that was made from a wrong state"]


def test_barrier_of_the_stage_is_not_what_makes_it_safe() -> None:
    """Without it nothing goes wrong either: the all-reduce of the world is barrier enough."""
    cases = [case._replace(lacks="barrier") for cases in FULL[:2] for case in cases]
    assert {case: result.wrong for case in cases if (result := explore(case)).wrong} == {}
