"""Orders: each carried out once and told, whatever else lies in their folder."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from holdfast.guard.asked import Asked, Undone
from holdfast.guard.jobprofile import Wish, wish_path
from holdfast.guard.levels import Allowed
from holdfast.guard.live import Live, LiveSettings
from holdfast.guard.sending import lay_down
from holdfast.shipment import Order
from holdfast.values import AnyEvent, Ordered


class Desk:
    """A run directory, and what was told of its orders."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        (run_dir / "run.json").write_text("{}")
        self.told: list[AnyEvent] = []
        self.undone: list[Undone] = []
        self.asked = self.start()

    def start(self) -> Asked:
        return Asked(self.run_dir, tell=self.told.append, undo=lambda: self.undone.pop(0))

    def order(self, order_id: str, kind: str, words: str = "") -> None:
        lay_down(self.run_dir, Order(order_id=order_id, kind=kind, words=words, who="me"))  # type: ignore[arg-type]

    def files(self) -> list[str]:
        return sorted(file.name for file in (self.run_dir / "orders").iterdir())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """One without orders."""
    return Desk(tmp_path)


def test_without_a_folder_there_is_nothing_to_do(desk: Desk) -> None:
    """Most runs are never asked for anything."""
    desk.asked.look()
    assert desk.told == []


def test_what_is_allowed_changes(desk: Desk) -> None:
    """As by holdfast act; the file is gone, and the log knows who it was."""
    allowed = Allowed(desk.run_dir, "")
    changes: list[int] = []
    allowed.on_change = lambda: changes.append(1)
    desk.order("o-1", "act", "S2,S3")
    desk.asked.look()
    assert allowed() == {"undo", "S2", "S3"}
    assert changes == [1]
    assert desk.told == [
        Ordered(order="o-1", what="act S2,S3", who="me", outcome="allowed from now on: S2,S3", is_done=True)
    ]
    assert desk.files() == []


def test_what_makes_no_sense_is_told_and_not_done(desk: Desk) -> None:
    """With what is expected."""
    desk.order("1", "act", "everything")
    desk.order("2", "set", "color=red")
    desk.order("3", "set", "kill_hung=perhaps")
    desk.asked.look()
    by_order = {event.order: event for event in desk.told if isinstance(event, Ordered)}
    assert not any(event.is_done for event in by_order.values())
    assert "expected all, none" in by_order["1"].outcome
    assert "one of kill_hung, profile, profile_every, least_confidence" in by_order["2"].outcome
    assert "expected true or false" in by_order["3"].outcome
    assert desk.files() == []


def test_a_profile_is_wished_for_under_the_orders_name(desk: Desk) -> None:
    """So that what comes of it can be found."""
    desk.order("p1", "profile")
    desk.asked.look()
    assert msgspec.json.decode(wish_path(desk.run_dir).read_bytes(), type=Wish) == Wish(id="p1")
    assert [event.is_done for event in desk.told if isinstance(event, Ordered)] == [True]


def test_to_undo_waits_for_what_is_being_done(desk: Desk) -> None:
    """The order lies there until there is an answer."""
    desk.undone = ["later", "later", "begun", "nothing"]
    desk.order("u1", "undo")
    desk.asked.look()
    desk.asked.look()
    assert (desk.told, desk.files()) == ([], ["u1.json"])
    desk.asked.look()
    desk.order("u2", "undo")
    desk.asked.look()
    first, second = desk.told
    assert isinstance(first, Ordered)
    assert isinstance(second, Ordered)
    assert (first.order, first.is_done) == ("u1", True)
    assert (second.outcome, second.is_done) == ("nothing is in force", False)
    assert desk.files() == []


def test_an_order_is_carried_out_once(desk: Desk) -> None:
    """Also if it comes again, and also by a guard that was started after the one that did it."""
    desk.order("a", "act", "S2")
    desk.asked.look()
    desk.order("a", "act", "S2")
    desk.asked.look()
    assert (len(desk.told), desk.files()) == (1, [])
    later = desk.start()
    later.follow_on(list(desk.told))
    desk.order("a", "act", "S2")
    later.look()
    assert (len(desk.told), desk.files()) == (1, [])


def test_what_is_no_order_is_put_aside(desk: Desk) -> None:
    """And the orders beside it are carried out; nothing is followed, waited for or believed."""
    folder = desk.run_dir / "orders"
    folder.mkdir()
    good = msgspec.json.encode(Order(order_id="good", kind="act", words="S2"))
    (folder / "broken.json").write_text("{")
    (folder / "deep.json").write_bytes(b"[" * 10_000)
    (folder / "kind.json").write_text('{"order_id":"kind","kind":"format the disk"}')
    (folder / "other-name.json").write_bytes(good)
    (folder / "bad name.json").write_text('{"order_id":"bad name","kind":"undo"}')
    (folder / "large.json").write_bytes(b" " * (1 << 20) + good)
    os.mkfifo(folder / "pipe.json")
    (desk.run_dir / "elsewhere").write_bytes(good)
    (folder / "link.json").symlink_to(desk.run_dir / "elsewhere")
    (folder / "folder.json").mkdir()
    (folder / "good.json").write_bytes(good)
    (folder / "notes.txt").write_text("mine")
    for _ in range(3):
        desk.asked.look()
    assert [event.order for event in desk.told if isinstance(event, Ordered)] == ["good"]
    assert [name for name in desk.files() if name.endswith(".json")] == []
    assert "notes.txt" in desk.files()


def test_what_a_person_wrote_reaches_the_log_in_plain_letters(desk: Desk) -> None:
    """In one line of a fair length."""
    lay_down(
        desk.run_dir, Order(order_id="x", kind="set", words="a\x1b[31m\n" + "b" * 5000, who="m\0e" * 900)
    )
    desk.asked.look()
    [event] = desk.told
    assert isinstance(event, Ordered)
    assert all(text.isprintable() and len(text) <= 200 for text in (event.what, event.who, event.outcome))


@pytest.mark.parametrize(
    ("words", "now"),
    [
        ("kill_hung=false", LiveSettings(kill_hung=False)),
        ("profile = on", LiveSettings(profile=True)),
        ("profile_every=500", LiveSettings(profile_every=500)),
        ("least_confidence=0.9", LiveSettings(least_confidence=0.9)),
    ],
)
def test_settings_change_while_the_run_goes_on(desk: Desk, words: str, now: LiveSettings) -> None:
    """For the guard that runs, and for the next one."""
    live = Live(desk.run_dir, LiveSettings())
    assert live() == LiveSettings()
    desk.order("1", "set", words)
    desk.asked.look()
    assert live() == now
    assert Live(desk.run_dir, LiveSettings())() == now


@pytest.mark.parametrize(
    "words",
    [
        "",
        "profile",
        "=1",
        "profile_every=-1",
        "profile_every=many",
        "least_confidence=nan",
        "least_confidence=2",
    ],
)
def test_settings_that_cannot_be_are_refused(desk: Desk, words: str) -> None:
    """Nothing is changed by them."""
    desk.order("1", "set", words)
    desk.asked.look()
    assert [event.is_done for event in desk.told if isinstance(event, Ordered)] == [False]
    assert Live(desk.run_dir, LiveSettings())() == LiveSettings()


def test_one_changed_setting_leaves_the_others_as_the_run_was_started(desk: Desk) -> None:
    """And a file that cannot be read changes nothing."""
    start = LiveSettings(kill_hung=False, profile=True)
    live = Live(desk.run_dir, start)
    desk.order("1", "set", "profile_every=7")
    desk.order("2", "set", "least_confidence=0.8")
    desk.asked.look()
    now = msgspec.structs.replace(start, profile_every=7, least_confidence=0.8)
    assert live() == now
    (desk.run_dir / "set.json").write_text('{"kill_hung":"perhaps"}')
    assert live() == now
