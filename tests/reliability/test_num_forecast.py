"""What must be true for a wanted ETTR; curves and the map."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.reliability.ettr import Conditions, best_interval_min, closed_form, exact
from holdfast.reliability.forecast import contour, curve, needed
from holdfast.reliability.outlook import look_ahead

LARGE = Conditions(nodes=1500, rate_per_1000_node_days=6.5, checkpoint_min=38.4, write_min=5)


def with_knob(conditions: Conditions, name: str, value: float) -> float:
    """ETTR with one knob turned."""
    return exact(msgspec.structs.replace(conditions, **{name: value}))


@given(
    st.integers(1, 20_000),
    st.floats(0.01, 50.0),
    st.floats(1.0, 200.0),
    st.floats(0.0, 30.0),
    st.floats(0.0, 30.0),
    st.floats(0.3, 0.95),
)
def test_every_answer_reaches_the_target_and_no_more(  # noqa: PLR0913, PLR0917 - what is drawn.
    nodes: int, rate: float, checkpoint_min: float, write_min: float, queue_min: float, target: float
) -> None:
    """At the value ETTR is the target; where a knob is not enough, not even its best value reaches it."""
    conditions = Conditions(
        nodes=nodes,
        rate_per_1000_node_days=rate,
        checkpoint_min=checkpoint_min,
        write_min=write_min,
        queue_min=queue_min,
    )
    found = needed(conditions, target)
    for name in ("restart_min", "write_min", "queue_min", "rate_per_1000_node_days"):
        value = getattr(found, name)
        if value is None:
            assert with_knob(conditions, name, 1e-12) < target * (1 + 1e-6), name
        elif value > 1e-6:  # Below, the last digits decide.
            assert with_knob(conditions, name, value) == pytest.approx(target, rel=1e-5), name
    best = best_interval_min(conditions) or 1e-9
    if found.checkpoint_min is None:
        assert with_knob(conditions, "checkpoint_min", best) < target
    else:
        assert found.checkpoint_min.low <= best * (1 + 1e-9)
        ends = (found.checkpoint_min.low, found.checkpoint_min.high)
        for end in ends if write_min > 1e-6 else ends[1:]:
            assert with_knob(conditions, "checkpoint_min", end) == pytest.approx(target, rel=1e-4)


def test_12000_gpus_need_short_writes_or_few_failures() -> None:
    """At 6.5 and 5 minutes of write, no interval gives 0.9; about 1 failure per 1000 node-days would."""
    found = needed(LARGE, 0.9)
    assert found.checkpoint_min is None
    assert found.restart_min is None
    assert found.rate_per_1000_node_days is None  # 5 minutes in 43 are more than a tenth.
    rare = needed(msgspec.structs.replace(LARGE, checkpoint_min=98.0), 0.895)
    assert rare.rate_per_1000_node_days == pytest.approx(1.0, abs=0.05)


def test_interval_of_free_writes_begins_at_nothing() -> None:
    """Any interval up to the longest one will do."""
    found = needed(Conditions(nodes=2000, rate_per_1000_node_days=6.5, checkpoint_min=60), 0.9)
    assert found.checkpoint_min is not None
    assert found.checkpoint_min.low == 0
    assert found.checkpoint_min.high == pytest.approx(13.4, abs=0.5)


@pytest.mark.parametrize("target", [0.0, 1.0, -1.0, float("nan")])
def test_targets_that_cannot_be_are_refused(target: float) -> None:
    """ETTR lies between 0 and 1."""
    with pytest.raises(InputError, match="between 0 and 1"):
        needed(LARGE, target)


def test_curve_agrees_with_single_jobs() -> None:
    """At every size: MTTF, both forms, and the form with the best interval."""
    sizes = [8, 1000, 16_384, 100_000]
    found = curve(LARGE, sizes)
    for index, gpus in enumerate(sizes):
        one = msgspec.structs.replace(LARGE, nodes=-(-gpus // 8))
        best = best_interval_min(one)
        assert best is not None
        assert found.closed_form[index] == pytest.approx(closed_form(one))
        assert found.exact[index] == pytest.approx(exact(one))
        assert found.best[index] == pytest.approx(with_knob(one, "checkpoint_min", best))
        assert found.mttf_hours[index] == pytest.approx(24_000 / 6.5 / one.nodes)


def test_curve_of_free_writes_is_what_restarts_leave() -> None:
    """With checkpoints all the time, only restarts cost."""
    free = Conditions(nodes=1, rate_per_1000_node_days=6.5, checkpoint_min=60)
    found = curve(free, [16_000])
    assert found.best[0] == pytest.approx(np.exp(-2000 * 6.5e-3 / 1440 * 5), rel=1e-4)


@pytest.mark.parametrize("level", [0.5, 0.7, 0.8])
def test_a_contour_goes_where_its_level_is_reached_and_no_further(level: float) -> None:
    """On both edges ETTR is the level; beyond the last rate no interval reaches it."""
    rates = np.geomspace(0.1, 100, 60)
    found = contour(LARGE, rates, level)
    count = len(found.rates_per_1000_node_days)
    assert 0 < count < 60
    assert np.array_equal(found.rates_per_1000_node_days, rates[:count])
    for index, rate in enumerate(rates[:count]):
        one = msgspec.structs.replace(LARGE, rate_per_1000_node_days=float(rate))
        for interval in (found.shortest_min[index], found.longest_min[index]):
            assert with_knob(one, "checkpoint_min", float(interval)) == pytest.approx(level)
    beyond = msgspec.structs.replace(LARGE, rate_per_1000_node_days=float(rates[count]))
    best = best_interval_min(beyond)
    assert best is not None
    assert with_knob(beyond, "checkpoint_min", best) < level


def test_a_contour_of_free_writes_has_no_shortest_interval() -> None:
    """And agrees with what is solved for one job."""
    free = Conditions(nodes=2000, rate_per_1000_node_days=6.5, checkpoint_min=60)
    found = contour(free, [6.5], 0.9)
    wanted = needed(free, 0.9).checkpoint_min
    assert wanted is not None
    assert found.shortest_min[0] == 0
    assert found.longest_min[0] == pytest.approx(wanted.high)


def test_outlook_brings_everything_together() -> None:
    """Formulas, played runs, the interval that comes from the rate's, and what adapting would give."""
    found = look_ahead(LARGE, np.random.default_rng(0), rate_interval=(5.0, 8.0))
    assert found.ettr.closed_form == pytest.approx(0.740, abs=6e-4)
    assert found.ettr.monte_carlo == pytest.approx(found.ettr.exact, abs=2e-3)
    assert found.ettr.low is not None
    assert found.ettr.high is not None
    assert found.ettr.low < found.ettr.exact < found.ettr.high
    assert found.best_interval_min == pytest.approx(38.4, abs=0.05)
    assert found.mttf_hours == pytest.approx(24_000 / 6.5 / 1500)
    assert not found.is_closed_form_good
    assert found.adaptive.closed_form > found.ettr.exact


def test_rate_outside_its_interval_is_refused() -> None:
    """Something was mistyped."""
    with pytest.raises(InputError, match="expected it between 7 and 8"):
        look_ahead(LARGE, np.random.default_rng(0), rate_interval=(7.0, 8.0))
