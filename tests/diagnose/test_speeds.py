"""How fast named ranks are, from what they need for an operation."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.diagnose.profiles import Profile
from holdfast.diagnose.speeds import Speeds
from holdfast.telemetry import Step, StepFlag


def healthy(rank: int, own_s: float = 0.2, work: float = 20) -> Profile:
    """Return a profile of a rank that needs 10 ms for an operation."""
    return Profile(
        rank=rank,
        steps=50,
        duration_s=own_s + 0.1,
        wait_s=0.1,
        data_s=0.0,
        gc_s=0.0,
        save_s=0.0,
        cpu_s=0.0,
        work=work,
        is_planned=True,
    )


def steps(
    rank: int, op_s: float, *, work: int = 20, count: int = 12, flags: int = StepFlag.PLANNED
) -> list[Step]:
    """Return steps in which a rank needs so long for an operation."""
    return [
        Step(
            rank=rank,
            step=number,
            ended_s=float(number),
            duration_s=work * op_s + 0.1,
            wait_s=0.1,
            work=work,
            flags=flags,
        )
        for number in range(count)
    ]


def test_speed_is_told_by_operation() -> None:
    """With half of the work and twice the time for each operation it is half as fast, not as fast as ever."""
    speeds = Speeds()
    speeds.follow([1], {1: healthy(1)})
    assert speeds.of({1: steps(1, 0.02, work=10)}) == {1: pytest.approx(0.5)}


def test_well_again_when_it_is() -> None:
    """Nine tenths of its speed is not; what it had before is."""
    speeds = Speeds()
    speeds.follow([1], {1: healthy(1)})
    assert speeds.of({1: steps(1, 0.02)}) == {1: pytest.approx(0.5)}
    assert speeds.of({1: steps(1, 0.0112)}) == {1: pytest.approx(0.893)}
    assert speeds.of({1: steps(1, 0.0101)}) == {}


def test_noise_is_no_change() -> None:
    """A few percent more or less, and the plan stands."""
    speeds = Speeds()
    speeds.follow([1], {1: healthy(1)})
    first = speeds.of({1: steps(1, 0.02)})
    assert speeds.of({1: steps(1, 0.0208)}) == first
    assert speeds.of({1: steps(1, 0.025)}) == {1: pytest.approx(0.4)}


def test_nothing_is_told_from_too_little() -> None:
    """Few steps, steps without a plan, ranks of whom nobody knows what they were."""
    speeds = Speeds()
    speeds.follow([1, 2], {1: healthy(1)})
    assert speeds.ranks == [1]
    assert speeds.of({1: steps(1, 0.02, count=5)}) == {}
    assert speeds.of({1: steps(1, 0.02, flags=0)}) == {}


def test_what_it_was_held_against_stays() -> None:
    """Named a second time, after the trouble has become usual: the first healthy profile counts."""
    speeds = Speeds()
    speeds.follow([1], {1: healthy(1)})
    speeds.follow([1], {1: healthy(1, own_s=0.4)})
    assert speeds.of({1: steps(1, 0.02)}) == {1: pytest.approx(0.5)}


def test_what_a_step_takes_anyway_is_no_slowness() -> None:
    """Half of a step's time does not depend on its work: who has little to do looks slow, and is not."""

    def own(op_s: float, work: int) -> list[Step]:
        return steps(1, 0.1 / work + op_s, work=work)

    speeds = Speeds()
    speeds.follow([1], {1: healthy(1, own_s=0.3, work=20)})
    assert speeds.of({1: own(0.02, 20)}) == {1: pytest.approx(0.6)}
    assert speeds.of({1: own(0.02, 10)}) == {1: pytest.approx(0.5)}
    assert speeds.of({1: own(0.01, 10)}) == {}


def test_noise_is_not_taken_for_what_a_step_takes_anyway() -> None:
    """An eighth less to do, and a twentieth more time for it than there should be: it is what it was."""
    speeds = Speeds()
    speeds.follow([1], {1: healthy(1, own_s=0.6, work=24)})
    assert speeds.of({1: steps(1, 0.0308, work=24)}) == {1: pytest.approx(0.812)}
    assert speeds.of({1: steps(1, 0.0323, work=21)}) == {1: pytest.approx(0.812)}
    assert speeds.of({1: steps(1, 0.0262, work=24)}) == {}


def test_operations_that_are_measured_tell_all() -> None:
    """However much a step takes anyway, and whatever the others have to do."""

    def measured(rank: int, op_s: float, work: int) -> list[Step]:
        own = steps(rank, op_s + 0.2 / work, work=work)
        return [msgspec.structs.replace(step, operations_s=work * op_s) for step in own]

    known = {rank: msgspec.structs.replace(healthy(rank, own_s=0.4), operations_s=0.2) for rank in range(4)}
    speeds = Speeds()
    speeds.follow([1], known)
    others = {0: measured(0, 0.011, 22), 2: measured(2, 0.011, 20), 3: measured(3, 0.011, 30)}
    assert speeds.of({1: measured(1, 0.022, 18), **others}) == {1: pytest.approx(0.5)}
    assert speeds.of({1: measured(1, 0.011, 18), **others}) == {}


def test_steps_of_two_plans_are_not_mixed() -> None:
    """While some are of before and some of after a change, what was told stands."""
    speeds = Speeds()
    speeds.follow([1], {1: healthy(1)})
    mixed = [*steps(1, 0.01, count=5), *steps(1, 0.02, work=10, count=5)]
    assert speeds.of({1: mixed}) == {}


def test_what_all_feel_is_not_the_ranks_own() -> None:
    """The machine got faster by a tenth since they were measured, or slower."""
    for weather in (0.9, 1.0, 1.3):
        speeds = Speeds()
        speeds.follow([1], {rank: healthy(rank) for rank in range(4)})
        others = {rank: steps(rank, 0.01 * weather) for rank in (0, 2, 3)}
        assert speeds.of({1: steps(1, 0.02 * weather), **others}) == {1: pytest.approx(0.5)}
        assert speeds.weather == pytest.approx(weather)


def test_who_has_more_to_do_tells_nothing_of_the_weather() -> None:
    """Those who took over its work take longer for their own."""
    speeds = Speeds()
    speeds.follow([1], {rank: healthy(rank) for rank in range(4)})
    others = {rank: steps(rank, 0.01, work=30) for rank in (0, 2)}
    assert speeds.of({1: steps(1, 0.02), 3: steps(3, 0.01), **others}) == {1: pytest.approx(0.5)}
