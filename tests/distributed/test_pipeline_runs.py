"""Real workers train, evaluate, save and load: the same numbers however the work is ordered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.lab.fork import Lab
from pipejobs import check_survived, open_lab, run, train

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A lab whose workers find the jobs of the tests."""
    with open_lab() as lab:
        yield lab


def test_order_of_the_work_does_not_show(lab: Lab) -> None:
    """Updates ahead of their verdict or not, backward in one piece or two: the same bits."""
    like = train(lab, 2, 2)
    for words in (["--synchronous"], ["--schedule", "1f1b"]):
        check_survived(train(lab, 2, 2, *words), like, pp=2)


def test_exact_sums_are_sums(lab: Lab) -> None:
    """Sums as floats and exact ones learn the same, to rounding."""
    exact, floats = train(lab, 2, 2), train(lab, 2, 2, "--no-exact")
    assert [float(x) for x in floats.losses] == pytest.approx([float(x) for x in exact.losses], rel=1e-4)


def test_where_the_model_is_cut_does_not_matter(lab: Lab) -> None:
    """One stage, two and three learn the same from the same data, clipping included, to rounding."""
    one, two, three = (run(lab, "pipescenes", count, "cut", str(count)) for count in (1, 2, 3))
    losses = [float(loss) for loss in one.losses]
    assert len(losses) == 4, one.story
    for other in (two, three):
        assert [float(loss) for loss in other.losses] == pytest.approx(losses, rel=1e-5), other.story


@pytest.mark.parametrize("is_exact", ["exact", "float"])
def test_schedules_agree_about_tensors_that_skip_a_stage(lab: Lab, is_exact: str) -> None:
    """Integers, inputs handed on as they are, weights off the path: the split of backward loses none."""
    split, whole = (run(lab, "pipescenes", 3, "skip", each, is_exact) for each in ("zero_bubble", "1f1b"))
    check_survived(split, whole, pp=3)


def test_parameters_of_two_bytes_are_summed_over_pipelines(lab: Lab) -> None:
    """Without exact sums too, peers of a stage hold the same bits in the end."""
    ran = run(lab, "pipescenes", 4, "half")
    check_survived(ran, ran, pp=2)


def test_evaluation_is_the_same_after_a_death(lab: Lab) -> None:
    """The dead worker's micro-batches are measured by its peer, and training goes on as before."""
    like, ran = (run(lab, "pipescenes", 4, "evaluate", "3", *die) for die in ([], ["3:forward:1:1"]))
    check_survived(ran, like, pp=2, dead=[3])
    found = [re.findall(r"evaluated (\S+)", log) for each in (like, ran) for log in each.result.logs[:3]]
    assert len({words[0] for words in found}) == 1, found


def test_evaluation_with_other_shapes_is_refused(lab: Lab) -> None:
    """What the next stage has no place for is named, rather than sent."""
    ran = run(lab, "pipescenes", 2, "evaluate", "6")
    assert ran.result.exit_codes == [1, 1], ran.story
    assert "InputError: stage 0 gave float32 (6, 4), expected float32 (3, 4)" in ran.result.logs[0]


@pytest.mark.parametrize("has_hub", [True, False])
def test_checkpoint_goes_on_where_it_was_saved(lab: Lab, tmp_path: Path, has_hub: bool) -> None:
    """Saved, loaded by other processes, and trained on: the bits of the run that was not broken off."""
    folder = tmp_path / "checkpoint"
    saved = run(lab, "pipescenes", 4, "save", str(folder), has_hub=has_hub)
    parts = [f"stage_{stage}.{kind}" for stage in range(2) for kind in ("pt", "sha256")]
    assert sorted(path.name for path in folder.iterdir()) == ["pipeline.json", *parts]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    check_survived(run(lab, "pipescenes", 4, "load", str(folder), has_hub=has_hub), saved, pp=2)


def test_death_after_a_load_changes_nothing(lab: Lab, tmp_path: Path) -> None:
    """A worker that dies in the first step after a checkpoint was loaded is survived as any other."""
    saved = run(lab, "pipescenes", 4, "save", str(tmp_path / "c"))
    ran = run(lab, "pipescenes", 4, "load", str(tmp_path / "c"), "1:forward:3:1")
    check_survived(ran, saved, pp=2, dead=[1])


@pytest.mark.parametrize("act", ["load", "save", "evaluate"])
def test_what_is_done_for_one_is_done_for_all(lab: Lab, tmp_path: Path, act: str) -> None:
    """One worker is in the next step, and dies there, when another has not heard yet that all have met."""
    saved = run(lab, "pipescenes", 4, "save", str(tmp_path / "c"))
    folder = tmp_path / ("c" if act == "load" else "new")
    # An evaluation before step 3 has three micro-batches that count as its own.
    death = f"1:forward:3:{4 if act == 'evaluate' else 1}"
    ran = run(lab, "pipescenes", 4, "late", act, str(folder), death)
    check_survived(ran, saved, pp=2, dead=[1])
    said = [re.findall(r"evaluated (\S+)", ran.result.logs[rank]) for rank in (0, 2, 3)]
    assert said[0] == said[1] == said[2]
    assert (tmp_path / "new" / "pipeline.json").exists() == (act == "save")


def test_stages_that_do_not_fit_are_named(lab: Lab) -> None:
    """Stage, shape and type are in the line; nobody hangs."""
    ran = run(lab, "pipescenes", 2, "misfit")
    assert "InputError: stage 1 cannot take what stage 0 gives: float32 (3, 4)" in ran.result.logs[1], (
        ran.story
    )


def test_peers_that_start_apart_are_refused(lab: Lab) -> None:
    """A builder that depends on the rank is found before the first step."""
    ran = run(lab, "pipescenes", 2, "apart")
    assert "InputError: stage 0: rank 1 starts from other parameters than rank 0" in ran.result.logs[1]


def test_mesh_talks_and_fails_as_one(lab: Lab) -> None:
    """A mesh holds every connection, adds up within a stage and over all, and is lost where one leaves."""
    ran = run(lab, "pipescenes", 3, "mesh", has_hub=False)
    lines = [log.splitlines() for log in ran.result.logs]
    even, odd = ["holds 5 of 5", "stage [4] [2]"], ["holds 4 of 4", "stage [2] [1]"]
    all_say = "all [7.0]"
    assert lines[0] == [*even, all_say, "before [2.0]", "lost", "lost", "over"], ran.story
    assert lines[1] == [*odd, all_say, "before [0.0]", "lost", "lost", "over"], ran.story
    assert lines[2] == [*even, all_say, "before [1.0]", "over"], ran.story
    assert ran.result.exit_codes == [0, 0, 0]


def test_collective_always_learns_that_its_generation_is_over(lab: Lab) -> None:
    """Whenever a worker leaves, in the middle of whatever sum, the other's wait ends."""
    ran = run(lab, "pipescenes", 2, "woken", "40", has_hub=False)
    assert ran.result.exit_codes == [0, 0], ran.story
    assert [len(log.splitlines()) for log in ran.result.logs] == [40, 40]


def test_ranks_follow_a_wish_at_the_same_step(lab: Lab, tmp_path: Path) -> None:
    """Also one on a node where no guard wishes; no number is done twice, none is left out."""
    ran = run(lab, "pipescenes", 2, "shares", str(tmp_path), has_hub=False)
    assert ran.result.exit_codes == [0, 0], ran.story
    taken = [re.findall(r"\[(.*)\]", log) for log in ran.result.logs]
    both = [[[int(word) for word in text.split(",")] for text in pair] for pair in zip(*taken, strict=True)]
    assert [(len(a), len(b)) for a, b in both] == [(4, 4)] * 2 + [(5, 3)] * 4
    assert all(sorted([*a, *b]) == list(range(8)) for a, b in both)
