"""Flight Recorder dumps on their way to the controller."""

from __future__ import annotations

from pathlib import Path

from batches import make_lines
from holdfast.guard.dumps import DumpsHere, store_dumps
from holdfast.guard.frames import Question
from holdfast.telemetry import Ask


def _question(dumps: str | None, dump_bytes: int = 100) -> Question:
    return Question(ask=Ask(id="q", ranks=[1, 2], duration_s=0.0, dumps=dumps), dump_bytes=dump_bytes)


def test_workers_lay_their_dumps_into_a_folder_of_their_own_node(tmp_path: Path) -> None:
    """Where the controller's folder is not to be seen; from there they travel with the answers."""
    here = DumpsHere(tmp_path / "run" / "flight_recorder.node1")
    ask = here.localise(_question("/not/on/this/node"))
    assert ask.dumps == str(tmp_path / "run" / "flight_recorder.node1")
    (Path(ask.dumps) / "_dump_1").write_bytes(b"one")
    (Path(ask.dumps) / "_dump_2").write_bytes(b"two")
    assert here.read([make_lines("q", 1)]) == {1: b"one"}
    assert here.read([make_lines("another", 2)]) == {}
    assert here.read([make_lines("q", 2)]) == {2: b"two"}


def test_a_folder_that_all_nodes_see_is_used_as_it_is(tmp_path: Path) -> None:
    """Then nothing has to travel."""
    here = DumpsHere(tmp_path / "mine")
    question = _question(str(tmp_path))
    assert here.localise(question) == question.ask
    (tmp_path / "_dump_1").write_bytes(b"one")
    assert here.read([make_lines("q", 1)]) == {}
    assert not (tmp_path / "mine").exists()


def test_no_more_travels_than_the_controller_has_allowed(tmp_path: Path) -> None:
    """A dump that is too large stays where it is; a smaller one may follow."""
    here = DumpsHere(tmp_path / "mine")
    here.localise(_question("/not/on/this/node", dump_bytes=10))
    for rank, size in ((1, 8), (2, 3), (3, 2)):
        (tmp_path / "mine" / f"_dump_{rank}").write_bytes(bytes(size))
    assert here.read([make_lines("q", rank) for rank in (1, 2, 3)]) == {1: bytes(8), 3: bytes(2)}


def test_a_question_without_dumps_leaves_no_trace(tmp_path: Path) -> None:
    """Nobody asked for them."""
    here = DumpsHere(tmp_path / "mine")
    question = _question(None)
    assert here.localise(question) == question.ask
    assert here.read([make_lines("q", 1)]) == {}
    assert not (tmp_path / "mine").exists()


def test_dumps_are_stored_beside_those_of_the_controllers_node(tmp_path: Path) -> None:
    """Under the names by which they are looked for."""
    store_dumps(tmp_path / "flight_recorder", {3: b"three", 12: b"twelve"})
    found = {path.name: path.read_bytes() for path in (tmp_path / "flight_recorder").iterdir()}
    assert found == {"_dump_3": b"three", "_dump_12": b"twelve"}


def test_a_folder_that_cannot_be_written_to_stops_nobody(tmp_path: Path) -> None:
    """The job is judged without dumps then."""
    (tmp_path / "file").write_text("")
    store_dumps(tmp_path / "file", {3: b"three"})
    assert (tmp_path / "file").read_text() == ""
