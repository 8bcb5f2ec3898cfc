"""What each strategy answers, against figures worked out by hand from its sources."""

from __future__ import annotations

import math
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.simulate.crew import Crew
from holdfast.simulate.models import BERT_LARGE, GPT3_2_7B, GPT3_6_7B, GPT3_MEDIUM, MODELS, Model, find_model
from holdfast.simulate.periods import Periods
from holdfast.simulate.strategies import NAMES, make_strategy, why_not
from holdfast.simulate.strategies.base import Situation, Strategy, transfer_s

ALL = tuple(range(32))
FAULT_S = 5.0 + 0.57 + 0.2


def make(name: str, model: Model = GPT3_6_7B, mtbf_s: float | None = 7200.0) -> Strategy:
    """A strategy with plans that have no memory cap, which are quick to make."""
    periods = Periods(dp=model.dp, pp=model.pp, microbatches=model.microbatch_choices[0])
    return make_strategy(name, model, periods, mtbf_s)


def lose(*workers: int, at_s: float = 3600.0, live: tuple[int, ...] = ALL) -> Situation:
    """Some of the live workers are gone."""
    left = tuple(worker for worker in live if worker not in workers)
    return Situation(at_s=at_s, live=left, left=workers)


def gain(*workers: int, live: tuple[int, ...], at_s: float = 7200.0) -> Situation:
    """Some workers are back."""
    return Situation(at_s=at_s, live=tuple(sorted((*live, *workers))), came=workers)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("name", NAMES)
def test_nobody_beats_its_profile_and_everybody_starts(name: str, model: Model) -> None:
    """With everybody alive, each strategy that has figures trains, and only Holdfast faster than 1F1B."""
    if why_not(name, model):
        with pytest.raises(InputError, match=model.title):
            make(name, model)
        return
    response = make(name, model).begin(ALL)
    assert response.throughput > 0
    assert response.throughput <= model.throughput or name == "holdfast"
    assert (response.failure_s, response.join_s, response.loses) == (0, 0, "nothing")


@pytest.mark.parametrize(
    ("model", "throughput", "best"),
    [(GPT3_MEDIUM, 42.0, "varuna"), (GPT3_2_7B, 9.768, "varuna"), (GPT3_6_7B, 5.51, "oobleck")],
)
def test_fault_free_is_the_best_profile_at_full_size(model: Model, throughput: float, best: str) -> None:
    """One number ties our schedules to all profiles: the best of them, scaled from 30 nodes to 32."""
    assert model.throughput == pytest.approx(throughput * 32 / 30)
    assert make(best, model).begin(ALL).throughput == pytest.approx(model.throughput)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(30, 5.51), (29, (5.51 + 5.14) / 2), (32, 5.51 * 32 / 30), (16, 3.53), (15, 0.0), (0, 0.0)],
)
def test_profile_is_interpolated(nodes: int, expected: float) -> None:
    """Linear between the nodes given, proportional above, nothing below the fewest."""
    assert GPT3_6_7B.oobleck.at(nodes) == pytest.approx(expected)


def test_bamboo_has_plateaus() -> None:
    """Its throughput depends on the number of whole pipelines of six."""
    assert BERT_LARGE.bamboo is not None
    assert [BERT_LARGE.bamboo.at(nodes) for nodes in (30, 29, 24, 23, 18, 17, 13)] == pytest.approx(
        [119, 99.4, 99.4, 74.5, 74.5, 49.7, 49.7]
    )


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_microbatches_are_chosen_by_rule(model: Model) -> None:
    """The smaller number lets one death per stage fit into the bubbles, the larger one does not."""
    small, large = model.microbatch_choices
    room = (model.pp - 1) * (model.dp - 1)
    assert small <= room < 2 * small
    assert large == 4 * small > room


def test_unknown_names_are_refused() -> None:
    """The message lists what there is."""
    with pytest.raises(InputError, match="no strategy 'prayer', expected one of holdfast, recycle"):
        make("prayer")
    with pytest.raises(InputError, match="no model 'gpt9', expected one of gpt3-medium"):
        find_model("gpt9")


def test_bamboo_runs_out_of_memory_on_the_large_models() -> None:
    """As in Oobleck's artifact."""
    reasons = {model.name: why_not("bamboo", model) for model in MODELS}
    assert reasons == {
        "gpt3-medium": "out of memory",
        "gpt3-2.7b": "out of memory",
        "gpt3-6.7b": "out of memory",
        "bert-large": None,
        "gpt2": None,
    }


def test_holdfast_pauses_shortly_and_redoes_the_step() -> None:
    """One death of 32 with 16 micro-batches fits into the bubbles of 1F1B."""
    holdfast = make("holdfast")
    holdfast.begin(ALL)
    response = holdfast.change(lose(5))
    assert response is not None
    assert response.failure_s == pytest.approx(FAULT_S)
    assert response.loses == "step"
    assert response.throughput >= GPT3_6_7B.throughput
    assert response.unit_s == pytest.approx(1024 / response.throughput)


def test_holdfast_moves_a_worker_when_that_pays() -> None:
    """Of two dead at one stage one is replaced from elsewhere after a quiet hour, not when changes chase."""
    assert transfer_s(GPT3_6_7B) == pytest.approx(16 * 6.7e9 / 8 / 1.25e9)
    calm, busy = make("holdfast"), make("holdfast")
    calm.begin(ALL)
    busy.begin(ALL)
    moved, stayed = calm.change(lose(5, 13)), busy.change(lose(5, 13, at_s=10.0))
    assert moved is not None
    assert stayed is not None
    assert moved.failure_s == pytest.approx(FAULT_S + transfer_s(GPT3_6_7B))
    assert stayed.failure_s == pytest.approx(FAULT_S)
    assert moved.throughput > stayed.throughput


def test_newcomer_goes_where_it_is_needed() -> None:
    """Whoever comes back brings full speed back, whatever the place it takes in the trace."""
    holdfast = make("holdfast")
    healthy = holdfast.begin(ALL)
    holdfast.change(lose(5))
    back = holdfast.change(gain(5, live=lose(5).live))
    assert back is not None
    assert back.throughput == healthy.throughput
    assert back.join_s == pytest.approx(0.57 + 0.2 + transfer_s(GPT3_6_7B))
    assert back.loses == "nothing"


@pytest.mark.parametrize("name", ["holdfast", "recycle"])
def test_lost_stage_means_the_checkpoint(name: str) -> None:
    """All four workers of stage 3 at once: nobody has its weights any more."""
    strategy = make(name)
    strategy.begin(ALL)
    response = strategy.change(lose(3, 11, 19, 27))
    assert response is not None
    assert response.loses == "checkpoint"
    assert response.failure_s == pytest.approx(5.0 + 701 - 120)
    assert response.throughput > 0


@pytest.mark.parametrize("name", ["holdfast", "recycle"])
def test_too_few_workers_stop_the_job_until_more_come(name: str) -> None:
    """Seven workers cannot hold eight stages; the eighth starts the job again from the checkpoint."""
    strategy = make(name)
    strategy.begin(ALL)
    few = tuple(range(7))
    stopped = strategy.change(Situation(at_s=50, live=few, left=ALL[7:]))
    assert stopped is not None
    assert (stopped.throughput, stopped.loses) == (0, "checkpoint")
    going = strategy.change(gain(7, live=few))
    assert going is not None
    assert going.throughput > 0
    assert (going.join_s, going.loses) == (581, "nothing")


def test_recycle_is_plain_1f1b_while_nobody_is_dead() -> None:
    """Its fault-free schedule leaves the bubbles that it needs later."""
    recycle = make("recycle")
    assert recycle.begin(ALL).throughput == pytest.approx(GPT3_6_7B.throughput)
    response = recycle.change(lose(31))
    assert response is not None
    # Integer bound of section 3.2's kind: 16 + 6 micro-batches of 3 slots against 1F1B's 23.
    assert response.throughput == pytest.approx(GPT3_6_7B.throughput * 69 / 66)


def test_oobleck_pauses_as_its_artifact_says_or_as_others_measured() -> None:
    """10 s at every change of the 6.7B model; 57 s and 100 s by TrainMover's measurement."""
    for name, remove_s, add_s in (("oobleck", 10, 10), ("oobleck-measured", 57, 100)):
        strategy = make(name)
        strategy.begin(ALL)
        lost, found = strategy.change(lose(1)), strategy.change(gain(1, live=lose(1).live))
        assert lost is not None
        assert found is not None
        assert (lost.failure_s, lost.loses) == (remove_s, "step")
        assert (found.join_s, found.loses) == (add_s, "nothing")


def test_oobleck_stops_below_its_fewest_nodes() -> None:
    """With 15 nodes the 6.7B model does not run."""
    strategy = make("oobleck")
    strategy.begin(ALL)
    response = strategy.change(Situation(at_s=5, live=ALL[:15], left=ALL[15:]))
    assert response is not None
    assert response.throughput == 0


def test_bamboo_keeps_newcomers_waiting_for_a_whole_pipeline() -> None:
    """With 29 nodes a 30th makes the fifth pipeline of six; with 24 the 25th makes none."""
    bamboo = make("bamboo", BERT_LARGE)
    bamboo.begin(ALL[:29])
    fifth = bamboo.change(gain(29, live=ALL[:29]))
    assert fifth is not None
    assert (fifth.throughput, fifth.join_s) == (119, 106)
    lost = bamboo.change(lose(29, live=ALL[:30]))
    assert lost is not None
    assert (lost.throughput, lost.failure_s, lost.loses) == (99.4, 76, "nothing")
    bamboo.begin(ALL[:24])
    assert bamboo.change(gain(24, live=ALL[:24])) is None


def test_varuna_goes_back_to_its_checkpoint_and_lets_newcomers_wait() -> None:
    """A restart without the checkpoint inside it; the first step and every tenth after it are saved."""
    varuna = make("varuna")
    started = varuna.begin(ALL)
    assert started.unit_s == pytest.approx(10 * 1024 / started.throughput)
    assert started.first_s == pytest.approx(1024 / started.throughput)
    assert started.write_s == 120
    lost = varuna.change(lose(0))
    assert lost is not None
    assert (lost.failure_s, lost.loses) == (581, "unit")
    assert varuna.change(gain(0, live=ALL[1:])) is None
    assert varuna.change(lose(0, live=ALL)) is None, "a node that waited is no loss"


def test_drop_pipeline_loses_a_pipeline_for_a_worker() -> None:
    """A second death in a pipeline that is out already costs nothing more."""
    strategy = make("drop-pipeline")
    strategy.begin(ALL)
    first = strategy.change(lose(0))
    assert first is not None
    assert first.throughput == pytest.approx(GPT3_6_7B.throughput * 3 / 4)
    assert strategy.change(lose(1, live=ALL[1:])) is None
    assert strategy.change(gain(0, live=ALL[2:])) is None
    whole = strategy.change(gain(1, live=(0, *ALL[2:])))
    assert whole is not None
    assert whole.throughput == pytest.approx(GPT3_6_7B.throughput)
    assert whole.join_s == pytest.approx(transfer_s(GPT3_6_7B))


def test_checkpoint_restart_repacks_the_workers_that_are_left() -> None:
    """31 workers make three pipelines and seven spares; the same batch takes ceil(64 / 3) + 7 slots of 3."""
    strategy = make("checkpoint-restart")
    started = strategy.begin(ALL)
    assert started.unit_s == pytest.approx(math.sqrt(2 * 120 * 7200))
    lost = strategy.change(lose(31))
    assert lost is not None
    assert lost.throughput == pytest.approx(GPT3_6_7B.throughput * 23 / (22 + 7))
    assert (lost.failure_s, lost.loses) == (581, "unit")
    assert strategy.change(lose(30, live=ALL[:31])) is None, "a spare is no loss"
    assert strategy.change(gain(30, live=ALL[:30])) is None, "nor does it make a pipeline"
    grown = strategy.change(gain(31, live=ALL[:31]))
    assert grown is not None
    assert (grown.checkpoint_s, grown.join_s, grown.loses) == (120, 581, "nothing")


def test_without_losses_checkpoint_restart_writes_no_checkpoints() -> None:
    """The best interval is then endless."""
    assert make("checkpoint-restart", mtbf_s=None).begin(ALL).write_s == 0


def test_ideals_are_what_they_say() -> None:
    """Fault-scaled follows the share of live workers, fault-free nothing."""
    scaled, free = make("fault-scaled"), make("fault-free")
    scaled.begin(ALL)
    free.begin(ALL)
    response = scaled.change(lose(*range(8)))
    assert response is not None
    assert response.throughput == pytest.approx(GPT3_6_7B.throughput * 24 / 32)
    assert response.failure_s == 0
    assert free.change(lose(0)) is None


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy_says_what_is_modelled(name: str) -> None:
    """In a sentence that a reader can check."""
    model = BERT_LARGE if name == "bamboo" else GPT3_6_7B
    assert len(make(name, model).modelled) > 40


@settings(max_examples=60)
@given(pp=st.integers(1, 5), dp=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_crew_keeps_its_people(pp: int, dp: int, seed: int) -> None:
    """Whoever comes, goes or moves, a stage never has more workers than pipelines, and nobody is lost."""
    rng = random.Random(seed)
    everyone = list(range(pp * dp))
    crew = Crew(pp=pp, live=everyone)
    assert crew.live == (dp,) * pp
    gone = rng.sample(everyone, rng.randint(0, len(everyone)))
    crew.leave(gone)
    back = rng.sample(gone, rng.randint(0, len(gone)))
    crew.come(back)
    there = len(everyone) - len(gone) + len(back)
    assert sum(crew.live) == there
    if crew.is_whole:
        moves = Periods(dp=dp, pp=pp, microbatches=4).normalized(crew.live)
        fewest = min(crew.live)
        crew.move(moves)
        assert sum(crew.live) == there
        assert min(crew.live) >= fewest
    crew.deal()
    assert max(crew.live) - min(crew.live) <= 1


def test_periods_follow_the_closed_form_without_a_memory_cap() -> None:
    """A stage's survivors share its micro-batches, in whole numbers: 3 x ceil(dp M / live)."""
    periods = Periods(dp=4, pp=4, microbatches=8)
    assert periods.one_f_one_b == 33
    for live in ((4, 4, 4, 3), (3, 3, 3, 3), (4, 2, 4, 4)):
        assert periods.of(live) == 3 * math.ceil(4 * 8 / min(live))


def test_periods_are_planned_once() -> None:
    """The same question again is answered from memory, and each mode has its own answer."""
    periods = Periods(dp=2, pp=2, microbatches=4, memory=2)
    first = periods.of((2, 1))
    assert periods.of((2, 1)) == first
    assert periods.of((2, 1), "naive") >= first


def test_problem_has_as_many_dead_as_it_should() -> None:
    """Each stage's dead begin where those of the stage before end, so pipelines share the damage."""
    problem = Periods(dp=4, pp=3, microbatches=2, memory=5).problem((3, 2, 4))
    assert [len(problem.live(stage)) for stage in range(3)] == [3, 2, 4]
    assert problem.speeds == ((0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 1.0))
    assert problem.cap(2) == 5


def test_responses_are_values() -> None:
    """Two of the same are equal, so a run can be compared with another."""
    assert make("oobleck").begin(ALL) == make("oobleck").begin(ALL)
    assert msgspec.json.encode(make("varuna").begin(ALL))
