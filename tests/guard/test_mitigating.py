"""What a guard does about suspects: wishes, and what it makes of their being granted, or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from helpers import SUSPECT, Ears
from holdfast.diagnose.lookout import Lookout, Trouble
from holdfast.diagnose.profiles import profiles_of
from holdfast.findings import Suspect
from holdfast.guard.levels import parse_levels
from holdfast.guard.mitigating import Mitigation
from holdfast.job.wishes import Crew, Granted, read_wish, write_crew, write_granted, write_wish
from holdfast.telemetry import Step, StepFlag
from holdfast.values import AnyEvent, Applied, Decided, Dropped, IncidentClosed, Verified

STEP_S = 0.1
WORK = 24
"""Operations of each rank in a step."""


class Job:
    """Two pipelines of two stages, ten steps a second, of which a rank can be slow."""

    def __init__(self, folder: Path, ears: Ears, *, act: str = "S2") -> None:
        self.folder = folder
        self.told: list[AnyEvent] = []
        self.lookout = Lookout()
        self.mitigation = Mitigation(
            folder, allowed=lambda: parse_levels(act), tell=self.told.append, say=ears.say
        )
        self.step = 0
        self.now_s = 0.0
        self.work = [WORK] * 4
        self.slow: dict[int, float] = {}
        self.weather = 1.0
        """How much longer everything takes everybody."""
        self.late_s = 0.0
        """What everybody waits in each step for a slow link."""
        self.flags = StepFlag.PLANNED
        self.cycle = 0
        self.is_shared_by_stage = True
        self.grant(generation=0, wish=0)

    def grant(
        self, *, generation: int, wish: int, ranks: int = 4, holders: Sequence[int] | None = None
    ) -> None:
        """Let the launcher say what is in force."""
        self.cycle = generation
        places = {rank: place for place, rank in enumerate(holders or range(ranks))}
        sizes = {"dp": 2, "pp": 2, "microbatches": 4}
        write_granted(
            self.folder,
            Granted(
                generation=generation,
                wish=wish,
                version=self.step,
                places=places,
                is_shared_by_stage=self.is_shared_by_stage,
                **sizes,
            ),
        )

    def live(self, seconds: int) -> None:
        """Train, and let the guard look once a second."""
        for _ in range(seconds):
            for _ in range(10):
                self._make_step()
            self.mitigation.look(self.lookout, self.now_s)

    def blame(self, suspect: Suspect = SUSPECT) -> None:
        """Say who is slow, since the last second began: rank 1, or somebody else."""
        healthy = profiles_of(self.lookout.steps_of(since=0), since=0, until=self.step - 10)
        self.mitigation.blame(
            [suspect],
            Trouble(
                since_step=self.step - 10,
                since_s=self.now_s - 2.0,
                healthy=healthy,
                healthy_since_s=0.0,
                healthy_steps={},
            ),
        )

    def decided(self) -> list[Decided]:
        return [event for event in self.told if isinstance(event, Decided)]

    def _make_step(self) -> None:
        own = [
            self.weather * 0.9 * STEP_S * self.work[rank] / WORK * self.slow.get(rank, 1.0)
            for rank in range(4)
        ]
        duration_s = max(own) + 0.1 * STEP_S + self.late_s
        self.now_s += duration_s
        self.lookout.take(
            [
                Step(
                    rank=rank,
                    step=self.step,
                    ended_s=self.now_s,
                    duration_s=duration_s,
                    wait_s=duration_s - own[rank],
                    work=self.work[rank],
                    flags=self.flags,
                    cycle=self.cycle,
                )
                for rank in range(4)
            ]
        )
        self.step += 1


@pytest.fixture
def job(tmp_path: Path, ears: Ears) -> Job:
    """A job that has been healthy for a while, and whose rank 1 has been slow for a second."""
    made = Job(tmp_path, ears)
    made.live(20)
    made.slow = {1: 2.0}
    made.live(1)
    made.blame()
    return made


def test_slow_rank_is_worked_around_and_comes_back(job: Job, ears: Ears) -> None:
    """A wish, granted; the bill when all is well again."""
    job.live(12)
    [decided] = job.decided()
    assert (decided.level, set(decided.speeds)) == ("S2", {1})
    assert decided.speeds[1] == pytest.approx(0.5, abs=0.02)
    wish = read_wish(job.folder)
    assert wish is not None
    assert (wish.number, wish.moves) == (1, [])
    job.grant(generation=1, wish=1)
    job.work = [WORK, 16, WORK, 32]
    job.live(10)
    [applied] = [event for event in job.told if isinstance(event, Applied)]
    assert applied.number == 1
    job.slow = {}
    job.live(4)
    assert [each.level for each in job.decided()] == ["S2", "undo"]
    job.grant(generation=2, wish=2)
    job.work = [WORK] * 4
    job.live(4)
    [bill] = [event for event in job.told if isinstance(event, IncidentClosed)]
    assert 5 < bill.lost_s < 40
    assert any("does S2" in line for line in ears.lines())


def test_who_dies_meanwhile_ends_the_matter(job: Job) -> None:
    """The workers have gone on in another way: what was known is about another job."""
    job.live(12)
    assert len(job.decided()) == 1
    job.grant(generation=1, wish=0, ranks=3)
    job.live(100)
    assert len(job.decided()) == 1
    assert not any(isinstance(event, Applied | Dropped) for event in job.told)


def test_a_wish_that_nobody_grants_is_dropped(job: Job) -> None:
    """After a minute; then it is wished for again."""
    job.live(60)
    assert [event.number for event in job.told if isinstance(event, Dropped)] == [1]
    assert [each.number for each in job.decided()] == [1, 2]


def test_without_leave_it_is_told_once(tmp_path: Path, ears: Ears) -> None:
    """And nothing is wished for."""
    job = Job(tmp_path, ears, act="none")
    job.live(20)
    job.slow = {1: 2.0}
    job.live(1)
    job.blame()
    job.live(40)
    [decided] = job.decided()
    assert decided.is_dry
    assert read_wish(tmp_path) is None


def test_a_job_that_nobody_can_arrange_is_left_alone(tmp_path: Path, ears: Ears) -> None:
    """No hub and no shares: nothing is said that nobody could do."""
    job = Job(tmp_path, ears)
    (tmp_path / "granted.json").unlink()
    job.live(20)
    job.slow = {1: 2.0}
    job.live(1)
    job.blame()
    job.live(40)
    assert job.told == []


def test_what_a_dead_guard_had_done_is_undone(job: Job, ears: Ears) -> None:
    """The next one finds the work shared out around nobody; its wishes have numbers of their own."""
    job.live(12)
    job.grant(generation=1, wish=1)
    job.work = [WORK, 16, WORK, 32]
    job.live(3)
    job.slow = {}
    job.told.clear()
    job.mitigation = Mitigation(
        job.folder, allowed=lambda: parse_levels("S2"), tell=job.told.append, say=ears.say
    )
    job.live(5)
    [decided] = job.decided()
    assert (decided.level, decided.number, decided.speeds) == ("undo", 2, {})


def test_what_was_done_before_somebody_died_can_be_taken_back(job: Job, ears: Ears) -> None:
    """By a person: nobody knows how fast ranks are in a job that misses one."""
    job.live(12)
    job.grant(generation=1, wish=1)
    job.work = [WORK, 16, WORK, 32]
    job.live(3)
    job.grant(generation=2, wish=1, ranks=3)
    job.live(3)
    job.told.clear()
    assert job.mitigation.undo() == "begun"
    wish = read_wish(job.folder)
    assert wish is not None
    assert (wish.number, wish.speeds, wish.moves) == (2, {}, [])
    job.grant(generation=3, wish=2, ranks=3)
    job.live(2)
    assert [(each.level, each.number) for each in job.told if isinstance(each, Decided | Applied)] == [
        ("undo", 2),
        ("undo", 2),
    ]
    assert job.mitigation.undo() == "nothing"


def test_places_that_a_dead_guard_had_changed_are_taken_again(moved: Job, ears: Ears) -> None:
    """The wish says who was to hold which; what came about in another way is left alone."""
    wish = read_wish(moved.folder)
    assert wish is not None
    assert wish.holders
    for holders, levels in ((wish.holders, ["undo"]), ([3, 1, 2, 0], [])):
        moved.grant(generation=moved.cycle + 1, wish=wish.number, holders=holders)
        moved.told.clear()
        moved.mitigation = Mitigation(
            moved.folder, allowed=lambda: parse_levels("S3"), tell=moved.told.append, say=ears.say
        )
        moved.live(5)
        assert [each.level for each in moved.decided()] == levels
        write_wish(moved.folder, wish)


def test_a_restart_is_not_over_because_somebody_follows_the_wish(tmp_path: Path, ears: Ears) -> None:
    """What it costs is seen when the job has started again."""
    job = _plain(tmp_path, ears, CREW)
    job.live(30)
    [decided] = job.decided()
    assert decided.level == "S4"
    job.is_shared_by_stage = False
    job.grant(generation=1, wish=decided.number)
    job.live(3)
    assert not any(isinstance(event, Applied) for event in job.told)


def _plain(tmp_path: Path, ears: Ears, crew: Crew) -> Job:
    """A job whose workers do not meet, and whose rank 1 has been slow for a second."""
    job = Job(tmp_path, ears, act="all")
    (tmp_path / "granted.json").unlink()
    job.flags = StepFlag(0)
    write_crew(tmp_path, crew)
    job.live(20)
    job.slow = {1: 2.0}
    job.live(1)
    job.blame()
    return job


CREW = Crew(attempt=0, nodes=[1, 1, 0, 0], spares=1, host=0, started_s=-10.0)
"""Four ranks on two nodes, which took ten seconds to start; a third stands by."""


def test_plain_job_is_restarted_without_a_slow_node(tmp_path: Path, ears: Ears) -> None:
    """When what it costs has reached the price of a start; all who run there leave."""
    job = _plain(tmp_path, ears, CREW)
    job.live(8)
    assert job.decided() == []
    job.live(40)
    decided = job.decided()[0]
    assert (decided.level, decided.without, decided.is_dry) == ("S4", [0, 1], False)
    assert decided.price_s == pytest.approx(11, abs=1)
    assert decided.lost_s >= decided.price_s
    wish = read_wish(tmp_path)
    assert wish is not None
    assert wish.without == [0, 1]


@pytest.mark.parametrize(
    "crew",
    [
        Crew(attempt=0, nodes=[1, 1, 0, 0], spares=0, host=0, started_s=-10.0),
        Crew(attempt=0, nodes=[1, 1, 0, 0], spares=1, host=None, started_s=-10.0),
        Crew(attempt=0, nodes=[1, 1, 0, 0], spares=1, host=1, started_s=-10.0),
        Crew(attempt=0, nodes=[0, 0, 0, 0], spares=0, host=0, started_s=-10.0),
    ],
)
def test_nobody_leaves_whom_nobody_replaces(tmp_path: Path, ears: Ears, crew: Crew) -> None:
    """No node stands by, nobody knows who has to stay, or it is the one that has to."""
    job = _plain(tmp_path, ears, crew)
    job.live(60)
    assert job.decided() == []


def test_plain_job_that_is_well_again_gets_its_bill(tmp_path: Path, ears: Ears) -> None:
    """Who is slow cannot be measured there, so it is over when the job is as fast as before."""
    job = _plain(tmp_path, ears, msgspec.structs.replace(CREW, spares=0))
    job.live(10)
    job.slow = {}
    job.mitigation.relieve()
    job.live(2)
    [bill] = [event for event in job.told if isinstance(event, IncidentClosed)]
    assert bill.lost_s == pytest.approx(10, abs=2)
    assert bill.paid_s == 0


def test_node_that_comes_to_stand_by_makes_it_possible(tmp_path: Path, ears: Ears) -> None:
    """What the trouble has cost until then is not forgotten."""
    job = _plain(tmp_path, ears, msgspec.structs.replace(CREW, spares=0))
    job.live(30)
    assert job.decided() == []
    write_crew(tmp_path, CREW)
    job.live(40)
    assert job.decided()[0].level == "S4"
    assert job.decided()[0].lost_s > 30


def test_a_person_takes_back_what_is_in_force(job: Job, ears: Ears) -> None:
    """By a wish like any other; while one is on its way there is nothing to say yet."""
    assert job.mitigation.undo() == "nothing"
    job.live(12)
    assert job.mitigation.undo() == "later"
    job.grant(generation=1, wish=job.decided()[-1].number)
    job.work = [WORK, 16, WORK, 32]
    job.live(2)
    assert job.mitigation.undo() == "begun"
    [_, decided] = job.decided()
    assert (decided.level, decided.is_asked, decided.speeds) == ("undo", True, {})
    wish = read_wish(job.folder)
    assert wish is not None
    assert (wish.number, wish.speeds) == (decided.number, {})
    assert any("a person wants what was done to be taken back" in line for line in ears.lines())
    job.grant(generation=2, wish=decided.number)
    job.work = [WORK] * 4
    job.live(60)
    assert len(job.decided()) == 2
    job.mitigation.allow_again()
    job.live(20)
    assert [each.level for each in job.decided()] == ["S2", "undo", "S2"]


@pytest.mark.parametrize(("least", "levels"), [(0.95, []), (0.85, ["S2"])])
def test_who_is_named_with_too_little_confidence_is_let_be(
    tmp_path: Path, ears: Ears, least: float, levels: list[str]
) -> None:
    """How much that is can be changed while the job runs."""
    job = Job(tmp_path, ears)
    job.live(20)
    job.slow = {1: 2.0}
    job.live(1)
    job.mitigation.least_confidence = least
    job.blame()
    job.live(12)
    assert [each.level for each in job.decided()] == levels


LINK = Suspect(
    kind="link",
    ranks=[0, 2],
    hosts=["a"],
    link=(0, 2),
    cause="link",
    slowdown=1.5,
    confidence=0.9,
    victims=[1, 3],
    evidence=["x"],
)


@pytest.fixture
def moved(tmp_path: Path, ears: Ears) -> Job:
    """A job in which a slow link was moved out of the way, and is as slow as before."""
    job = Job(tmp_path, ears, act="S2,S3")
    job.live(20)
    job.late_s = 0.5 * STEP_S
    job.live(1)
    job.blame(LINK)
    job.live(6)
    [decided] = job.decided()
    assert decided.level == "S3"
    assert decided.moves
    job.grant(generation=1, wish=1)
    job.late_s = 0.0
    job.live(4)
    job.mitigation.relieve()
    return job


def _work_around_rank_1(job: Job) -> Decided:
    """Let rank 1 be slow until it has less to do."""
    job.slow = {1: 2.0}
    job.live(1)
    job.blame()
    job.live(6)
    [*_, shared] = job.decided()
    assert (shared.level, set(shared.speeds), shared.moves) == ("S2", {1}, [])
    job.grant(generation=2, wish=shared.number)
    job.work = [WORK, 16, WORK, 32]
    return shared


def _be_slow_for_a_while(job: Job) -> Decided:
    """Let rank 1 be slow, and worked around; return what is done when it is well again."""
    shared = _work_around_rank_1(job)
    job.live(4)
    job.slow = {}
    job.live(4)
    [*_, last] = job.decided()
    assert last.number == shared.number + 1
    assert last.speeds == {}
    return last


def test_link_that_was_slow_a_moment_ago_is_left_where_it_is(moved: Job) -> None:
    """Nobody knows how it is; only the work is shared out as before."""
    assert _be_slow_for_a_while(moved).moves == []


def _live_until_back(job: Job) -> tuple[Decided, Decided]:
    """Let time pass, until the old places are to be taken; return what was decided."""
    for _ in range(600):
        if len(job.decided()) > 1:
            break
        job.live(1)
    [there, back] = job.decided()
    return there, back


def test_link_that_was_slow_long_ago_gets_its_old_place(moved: Job) -> None:
    """Eight times as long as it was seen to be slow; then the bill."""
    moved.live(40)
    assert len(moved.decided()) == 1
    there, back = _live_until_back(moved)
    assert back.level == "undo"
    assert {(after, before) for before, after in back.moves} == set(there.moves)
    assert not any(isinstance(event, IncidentClosed) for event in moved.told)
    moved.grant(generation=2, wish=back.number)
    moved.live(10)
    [bill] = [event for event in moved.told if isinstance(event, IncidentClosed)]
    assert bill.since_step == back.since_step == there.since_step
    assert len(moved.decided()) == 2


def test_link_that_is_still_slow_there_is_moved_again(moved: Job) -> None:
    """It has been slow for all of that time, so that nobody tries again for eight times as long."""
    _, back = _live_until_back(moved)
    moved.grant(generation=2, wish=back.number)
    moved.late_s = 0.5 * STEP_S
    moved.live(2)
    moved.blame(LINK)
    moved.live(6)
    [*_, again] = moved.decided()
    assert (again.level, again.number) == ("S3", back.number + 1)
    moved.grant(generation=3, wish=again.number)
    moved.late_s = 0.0
    moved.live(600)
    assert moved.decided()[-1] == again


def test_work_is_shared_out_evenly_at_the_old_places(moved: Job) -> None:
    """A slow link from long ago and a slow rank that is well again are undone in one meeting."""
    moved.live(40)
    _work_around_rank_1(moved)
    moved.live(600)
    moved.slow = {}
    moved.live(4)
    [there, _, back] = moved.decided()
    assert (back.level, back.speeds) == ("undo", {})
    assert {(after, before) for before, after in back.moves} == set(there.moves)


def test_nobody_is_slower_than_others_where_most_are_slow(tmp_path: Path, ears: Ears) -> None:
    """All of a machine that is busy with something else: whoever got their work would be no faster."""
    job = Job(tmp_path, ears)
    job.live(20)
    job.slow = {0: 1.5, 1: 2.0, 2: 1.6}
    job.live(1)
    job.blame(msgspec.structs.replace(SUSPECT, ranks=[0, 1, 2], cause="cpu_contention"))
    job.live(30)
    assert job.decided() == []


def test_job_that_is_as_it_was_is_held_against_that(job: Job) -> None:
    """What a healthy step is need not be found out again."""
    job.live(12)
    job.grant(generation=1, wish=1)
    job.work = [WORK, 16, WORK, 32]
    job.live(10)
    job.slow = {}
    job.live(4)
    job.grant(generation=2, wish=2)
    job.work = [WORK] * 4
    job.live(1)
    assert job.lookout.healthy_s == pytest.approx(STEP_S, rel=0.02)


def test_pause_belongs_to_what_was_done(job: Job) -> None:
    """It is granted before the workers meet; what the meeting takes is not held against what follows."""
    job.live(12)
    job.grant(generation=1, wish=1)
    job.cycle = 0
    job.live(1)
    assert not any(isinstance(event, Applied) for event in job.told)
    job.now_s += 1.0
    job.cycle = 1
    job.work = [WORK, 16, WORK, 32]
    job.live(4)
    [applied] = [event for event in job.told if isinstance(event, Applied)]
    assert applied.pause_s == pytest.approx(1.0, abs=0.1)
    [verified] = [event for event in job.told if isinstance(event, Verified)]
    assert verified.is_enough


def test_nothing_is_judged_while_everybody_is_slow(job: Job) -> None:
    """Something holds up the whole machine while S2 is on trial; when that is over it has helped."""
    job.live(6)
    job.grant(generation=1, wish=1)
    job.work = [WORK, 16, WORK, 32]
    job.weather = 2.0
    job.live(10)
    assert not any(isinstance(event, Verified) for event in job.told)
    assert len(job.decided()) == 1
    job.weather = 1.0
    job.live(10)
    [verified] = [event for event in job.told if isinstance(event, Verified)]
    assert verified.is_enough


def test_job_that_becomes_another_later_is_not_held_against_what_it_was(tmp_path: Path, ears: Ears) -> None:
    """Its steps were the same all along, however its work was shared out; then it is changed by its owner."""
    job = Job(tmp_path, ears)
    job.is_shared_by_stage = False
    job.grant(generation=0, wish=0)
    job.live(20)
    job.slow = {1: 2.0}
    job.live(1)
    job.blame()
    job.live(12)
    assert [each.level for each in job.decided()] == ["S2"]
    for number, work in ((1, [WORK, 16, WORK, 32]), (2, [WORK] * 4)):
        job.grant(generation=number, wish=number)
        job.cycle = 0
        job.work = work
        job.live(4)
        job.slow = {}
        job.live(6)
    assert any(isinstance(event, IncidentClosed) for event in job.told)
    job.cycle = 7
    job.live(1)
    assert job.lookout.healthy_s is None
