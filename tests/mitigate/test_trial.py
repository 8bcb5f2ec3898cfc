"""How a deed is judged by the steps after it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.mitigate.condition import Arrangement, Condition
from holdfast.mitigate.look import Decision, Look
from holdfast.mitigate.trial import Trial, Verdict

HEALTHY_MS = 681
BEFORE = 1.10
"""Step time over the healthy one while a link was slow."""
HELD_UP_MS = (1236, 807, 759, 1053, 946, 788, 905, 764, 785, 769, 715, 814, 815, 821, 752, 973, 1015, 1082)
"""Seen after that link had been moved away: somebody else used the machine."""


def _trial(gain: float) -> Trial:
    decision = Decision(
        level="S3",
        deed="exchange",
        arrangement=Arrangement(),
        before=Arrangement(),
        gain=gain,
        saved_s=0.0,
        lost_s=0.0,
        price_s=1.0,
        outlook_s=0.0,
    )
    return Trial(decision, frozenset(), before=BEFORE)


def _judge(trial: Trial, steps_ms: Sequence[int]) -> tuple[int, Verdict] | None:
    """Return after how many steps there was a verdict, and which."""
    for number, step_ms in enumerate(steps_ms):
        look = Look(
            step=0, steps=1, seconds=step_ms / 1000, healthy_s=HEALTHY_MS / 1000, condition=Condition()
        )
        verdict = trial.take(look)
        if verdict is not None:
            return number, verdict
    return None


def test_what_helps_has_helped_after_ten_steps() -> None:
    """The first one does not count, which began before."""
    found = _judge(_trial(0.066), [1236] + 40 * [690])
    assert found is not None
    assert found[0] == 10
    assert found[1].is_enough


def test_what_does_not_help_is_found_out_as_soon() -> None:
    """Where steps are all alike."""
    found = _judge(_trial(0.066), [1236] + 20 * [748, 750])
    assert found is not None
    assert found[0] == 10
    assert not found[1].is_enough


def test_a_machine_that_is_held_up_is_no_reason_to_take_something_back() -> None:
    """It is waited for until it is calm again, and then the deed has helped."""
    trial = _trial(0.066)
    assert _judge(trial, HELD_UP_MS) is None
    found = _judge(trial, 20 * [682])
    assert found is not None
    assert found[1].is_enough


def test_nobody_is_on_trial_for_ever() -> None:
    """Where steps never are alike, what is seen after forty has to do."""
    found = _judge(_trial(0.066), [1236] + 25 * [670, 870])
    assert found is not None
    assert found[0] == 40
    assert not found[1].is_enough
