"""Models that are split or replicated by torch itself: the waiting is seen, the training is what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from disturbed import undisturbed
from holdfast.telemetry import Step, StepFlag
from pairs import Run, run_ranks
from shardjob import KINDS, STALL_S, STALLED, STEPS

pytestmark = [pytest.mark.processes, pytest.mark.alone]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """The same job without us and with us."""
    folder, script = tmp_path_factory.mktemp("shards"), Path(__file__).parent.parent / "shardjob.py"
    plain = run_ranks(script, folder, is_watched=False)
    watched = undisturbed(lambda: run_ranks(script, folder, is_watched=True))
    for run in (plain, watched):
        assert (run.codes, run.stderr) == ([0, 0], ["", ""])
    return plain, watched


def _steps(run: Run, rank: int, kind: str) -> list[Step]:
    first = STEPS * list(KINDS).index(kind)
    return run.steps(rank)[first : first + STEPS]


def test_losses_are_the_same_to_the_last_bit(runs: tuple[Run, Run]) -> None:
    """Whichever way the model is split, compiled ones too."""
    plain, watched = runs
    assert [told["losses"] for told in plain.told] == [told["losses"] for told in watched.told]


def test_every_update_is_a_step(runs: tuple[Run, Run]) -> None:
    """With eleven optimizers one after the other, and those of a last run for DDP's figures."""
    for rank in (0, 1):
        assert len(runs[1].steps(rank)) == STEPS * (len(KINDS) + 1)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "compiled"])
def test_the_fast_rank_waits_while_the_slow_one_stalls(runs: tuple[Run, Run], kind: str) -> None:
    """In the steps with a stall, and by name of a group that both are in."""
    fast, slow = (_steps(runs[1], rank, kind) for rank in (0, 1))
    # With a static graph the buckets are laid out anew in the third forward pass, which no log tells of.
    for step in STALLED[kind == "static_ddp" :]:
        assert fast[step].wait_s > 0.7 * STALL_S
        assert slow[step].own_s > 0.9 * STALL_S
        assert fast[step].wait_s <= fast[step].duration_s
        assert fast[step].calls > 0
    channels = runs[1].channels(0)
    waits = {use.channel: use.wait_s for use in fast[STALLED[-1]].channels}
    longest = channels[max(waits, key=lambda number: waits[number])]
    assert (longest.kind, longest.ranks) == ("group", [0, 1])


def test_gradients_that_are_joined_thrice_are_waited_for_thrice(runs: tuple[Run, Run]) -> None:
    """Each backward pass that communicates counts; with ``no_sync`` only the last one does."""
    calls = {kind: _steps(runs[1], 0, kind)[-1].calls for kind in KINDS}
    chosen = ("wasteful_ddp", "accumulating_ddp", "plain_ddp", "two_ddps")
    assert [calls[kind] for kind in chosen] == [3, 1, 1, 2]


def test_ddps_own_log_stays_as_it_is(runs: tuple[Run, Run]) -> None:
    """Iterations are counted once, and its average is of the order of its parts."""
    for told in runs[1].told:
        assert told["figures"]["iteration"] == STEPS
        assert 0 < told["figures"]["avg_backward_comm_time"] < 10e9


def test_a_step_in_which_something_was_compiled_says_so(runs: tuple[Run, Run]) -> None:
    """The first one of the compiled job, and no other job's."""
    flagged = {kind: [bool(s.flags & StepFlag.COMPILE) for s in _steps(runs[1], 0, kind)] for kind in KINDS}
    assert flagged.pop("compiled") == [True] + [False] * (STEPS - 1)
    assert not any(map(any, flagged.values()))
