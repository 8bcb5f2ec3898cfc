"""SilenceDetector: a job that has stopped is noticed once, one that is busy with something else is not."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from holdfast.detect.silence import BUSY, GAPS, LEAST_S, STEPS, Sign, Silence, SilenceDetector


class Story:
    """A job that is looked at once a second."""

    def __init__(self, ranks: Iterable[int] = (0, 1)) -> None:
        self.detector = SilenceDetector()
        self.now_s = 0.0
        self.told: list[tuple[float, Silence]] = []
        self._ranks = list(ranks)
        self._calls = 0
        self._cpu_s = 0.0

    def train(self, seconds: int, step_s: float = 1.0) -> None:
        """Do steps; those that take longer than a second end when they do."""
        every = max(1, round(step_s))
        for second in range(seconds):
            ended = second % every == every - 1
            if ended:
                for _ in self._ranks:
                    self.detector.learn(step_s)
            self._look(calls=1 if ended else 0)

    def stand(self, seconds: int, *, cpu: float = 0.02) -> None:
        """Do nothing, but use so much of a processor."""
        for _ in range(seconds):
            self._look(cpu=cpu)

    def evaluate(self, seconds: int) -> None:
        """Make calls, and no steps."""
        for _ in range(seconds):
            self._look(calls=1)

    def _look(self, *, calls: int = 0, cpu: float = 0.02) -> None:
        self.now_s += 1
        self._calls += calls
        self._cpu_s += cpu
        signs = {rank: Sign(marks=(self._calls, 0), cpu_s=self._cpu_s) for rank in self._ranks}
        silence = self.detector.see(self.now_s, signs)
        if silence is not None:
            self.told.append((self.now_s, silence))


def test_a_job_that_stops_is_told_once() -> None:
    """After the least time, with how long it has lasted; and not again, however long it lasts."""
    story = Story()
    story.train(30)
    story.stand(400)
    assert story.told == [(40.0, Silence(lasted_s=LEAST_S, limit_s=LEAST_S))]


def test_the_clock_may_begin_anywhere() -> None:
    """A first look at second 0 is a look as any other."""
    detector = SilenceDetector()
    signs = {0: Sign(marks=(1, 1), cpu_s=0.0)}
    told = []
    for second in range(40):
        if second < 3:
            detector.learn(1.0)
            signs = {0: Sign(marks=(1, second), cpu_s=0.0)}
        told.append(detector.see(float(second), signs))
    assert [at for at, each in enumerate(told) if each is not None] == [12]


def test_it_is_told_again_after_progress() -> None:
    """A second silence is another one; what was learnt of the first is bounded, though it took an hour."""
    story = Story()
    story.train(30)
    story.stand(3600)
    story.train(300)
    story.stand(3600)
    assert len(story.told) == 2
    assert story.told[1][1].limit_s <= GAPS * 2 * LEAST_S


@pytest.mark.parametrize("step_s", [3.0, 20.0, 120.0])
def test_long_steps_give_it_time(step_s: float) -> None:
    """The limit is so many times the longest of the last steps."""
    story = Story()
    story.train(int(10 * step_s), step_s)
    assert story.told == []
    story.stand(int(2 * STEPS * step_s))
    assert [silence.limit_s for _, silence in story.told] == [max(LEAST_S, STEPS * step_s)]


def test_the_limit_does_not_depend_on_how_many_ranks_tell_of_a_step() -> None:
    """A long step of a thousand ranks is remembered as long as one of two."""
    few, many = Story(range(2)), Story(range(1000))
    for story in (few, many):
        story.train(20, 10.0)
        story.train(100, 1.0)
    assert few.detector.limit_s == many.detector.limit_s == STEPS * 10


def test_start_up_may_take_any_time() -> None:
    """Before there were steps nothing is silent, and how long it took is not held for a usual pause."""
    story = Story()
    story.stand(2000)
    story.evaluate(3)
    story.stand(500)
    assert story.told == []
    story.train(30)
    assert story.detector.limit_s == LEAST_S
    story.stand(20)
    assert len(story.told) == 1


def test_calls_are_no_silence() -> None:
    """An evaluation communicates, or steps in another way."""
    story = Story()
    story.train(30)
    story.evaluate(3600)
    assert story.told == []


def test_work_without_calls_is_let_be_for_longer() -> None:
    """What uses a processor is not told for six times as long; but not for ever."""
    story = Story()
    story.train(30)
    story.stand(int(LEAST_S * BUSY) - 10, cpu=0.9)
    assert story.told == []
    story.stand(30, cpu=0.9)
    assert len(story.told) == 1


def test_a_pause_that_comes_again_is_learnt() -> None:
    """Checkpoints of eight seconds let later ones take thrice as long."""
    story = Story()
    for _ in range(4):
        story.train(60)
        story.stand(8)
    story.train(60)
    assert story.detector.limit_s == GAPS * 8
    story.stand(20)
    assert story.told == []


def test_long_checkpoints_are_told_a_few_times_at_most() -> None:
    """A pause of a minute that ends by itself again and again is not told each time."""
    story = Story()
    for _ in range(12):
        story.train(400)
        story.stand(60)
    assert 1 <= len(story.told) <= 2


def test_one_rank_that_goes_on_is_enough() -> None:
    """Nothing is silent while somebody still makes calls."""
    detector = SilenceDetector()
    for second in range(100):
        detector.learn(1.0)
        signs = {0: Sign(marks=(5, 5), cpu_s=0.0), 1: Sign(marks=(second, 5), cpu_s=0.0)}
        assert detector.see(float(second), signs) is None


def test_nodes_that_tell_in_turn_are_all_heard() -> None:
    """A rank that is not seen at every look has not moved when it is seen again."""
    detector = SilenceDetector()
    told = []
    for second in range(100):
        if second < 20:
            detector.learn(1.0)
        both = {rank: Sign(marks=(min(second, 20), rank), cpu_s=0.0) for rank in range(2)}
        seen = {second % 2: both[second % 2]} if second > 22 else both
        told.append(detector.see(float(second), seen))
    assert [at for at, each in enumerate(told) if each is not None] == [30]


def test_a_rank_that_disappears_is_no_progress() -> None:
    """Who died does not move; those who wait for it are silent all the same."""
    detector = SilenceDetector()
    told = []
    for second in range(60):
        if second < 20:
            detector.learn(1.0)
        signs = {rank: Sign(marks=(min(second, 20), 0), cpu_s=0.0) for rank in range(2)}
        told.append(detector.see(float(second), signs if second < 25 else {0: signs[0]}))
    assert [at for at, each in enumerate(told) if each is not None] == [30]
