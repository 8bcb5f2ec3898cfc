"""The vocabulary: what a fault may say, and that every event has a name and room beside its stamp."""

from __future__ import annotations

import math
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import EVENTS, FAULT
from holdfast.faults import FACTOR_KINDS, FAULT_KINDS, SECONDS_KINDS, Fault, FaultKind
from holdfast.values import AnyEvent, Stamp


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    """Any fault that makes sense."""
    kind = draw(st.sampled_from(FAULT_KINDS))
    ranks = st.integers(0, 10_000)
    target: Any = draw(ranks)
    if kind == "slow_link":
        target = draw(st.tuples(ranks, ranks).filter(lambda pair: pair[0] != pair[1]))
    least = 1.0 if kind in FACTOR_KINDS else 0.0
    return Fault(
        kind=kind,
        target=target,
        at_step=draw(st.integers(0, 10**9)),
        for_steps=draw(st.none() | st.integers(1, 10**9)),
        severity=draw(st.floats(least, 1e9)),
    )


@given(faults())
def test_any_sensible_fault_survives_json(fault: Fault) -> None:
    """A fault read back from its JSON is the same fault."""
    assert msgspec.json.decode(msgspec.json.encode(fault), type=Fault) == fault


@given(faults(), st.integers(0, 10**9))
def test_a_fault_is_active_for_exactly_its_steps(fault: Fault, offset: int) -> None:
    """It holds from its first step on, for as many steps as it says, and not one longer."""
    assert not fault.is_active(fault.at_step - 1)
    assert fault.is_active(fault.at_step)
    if fault.for_steps is None:
        assert fault.is_active(fault.at_step + offset)
    else:
        assert fault.is_active(fault.at_step + fault.for_steps - 1)
        assert not fault.is_active(fault.at_step + fault.for_steps + offset)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "kill", "target": (0, 1)}, "target of kill is (0, 1), expected one rank, such as 1"),
        ({"kind": "slow_link", "target": 1}, "target of slow_link is 1, expected two ranks, such as [0, 1]"),
        ({"kind": "slow_link", "target": (2, 2)}, "target is (2, 2), expected different ranks from 0 up"),
        ({"kind": "kill", "target": -1}, "target is -1, expected different ranks from 0 up"),
        ({"kind": "hang", "target": 0, "at_step": -1}, "at_step is -1, expected 0 or more"),
        ({"kind": "hang", "target": 0, "for_steps": 0}, "for_steps is 0, expected 1 or more"),
        (
            {"kind": "slow_nic", "target": 0, "severity": 0.5},
            "severity of slow_nic is 0.5, expected 1 or more",
        ),
        (
            {"kind": "data_stall", "target": 0, "severity": -0.1},
            "severity of data_stall is -0.1, expected 0 or more",
        ),
        (
            {"kind": "cpu_quota", "target": 0, "severity": math.nan},
            "severity of cpu_quota is nan, expected 1 or more",
        ),
        (
            {"kind": "gc_storm", "target": 0, "severity": math.inf},
            "severity of gc_storm is inf, expected 0 or more",
        ),
    ],
)
def test_an_impossible_fault_says_what_was_expected(fields: dict[str, Any], message: str) -> None:
    """The error carries the value and what would have been right."""
    with pytest.raises(ValueError, match="expected") as caught:
        Fault(**fields)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "meteor", "target": 0}',
        '{"kind": "kill", "target": 0, "when": 3}',
        '{"kind": "kill", "target": "0"}',
        '{"kind": "slow_link", "target": [0, 1, 2]}',
        '{"kind": "slow_link", "target": []}',
        '{"kind": "slow_nic", "target": 0, "severity": 0.9}',
        '{"kind": "kill"}',
    ],
)
def test_a_wrong_fault_in_json_is_refused(text: str) -> None:
    """Unknown kinds, unknown fields, wrong types and impossible numbers all are."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Fault)


def test_the_target_of_a_link_is_both_its_ends() -> None:
    """``ranks`` is a tuple whatever the kind."""
    assert (FAULT.ranks, Fault(kind="kill", target=3).ranks) == ((0, 1), (3,))


def test_every_kind_has_one_meaning_of_severity() -> None:
    """A kind is measured as a factor, in seconds, or (kill, hang) not at all."""
    unmeasured: set[FaultKind] = set(FAULT_KINDS) - FACTOR_KINDS - SECONDS_KINDS
    assert unmeasured == {"kill", "hang"}
    assert not FACTOR_KINDS & SECONDS_KINDS


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_survives_json(event: AnyEvent) -> None:
    """An event read back by its name is equal, and of the same class."""
    again = msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent)
    assert (type(again), again) == (type(event), event)


def test_the_samples_have_every_kind_of_event() -> None:
    """A new event without a sample would go untested."""
    assert {type(event) for event in EVENTS} == set(get_args(AnyEvent))


@pytest.mark.parametrize("kind", get_args(AnyEvent), ids=lambda kind: kind.__name__)
def test_no_event_hides_a_field_of_its_stamp(kind: type[msgspec.Struct]) -> None:
    """Stamp and event share one line of the log, so their fields must not share names."""
    assert not set(kind.__struct_fields__) & {*Stamp.__struct_fields__, "name", "type"}


def test_events_have_different_names() -> None:
    """``name`` tells them apart."""
    names = [kind.__struct_config__.tag for kind in get_args(AnyEvent)]
    assert len(set(names)) == len(names)
