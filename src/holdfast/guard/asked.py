"""Carries out what people ask of a run while it goes on: every order once, and the log says what came of it.

Orders lie as files in ``orders/`` of the run directory, where the guard of node 0 looks once a second. They
come from outside, so that nothing in them is believed before it is checked.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.errors import InputError
from holdfast.guard.jobprofile import Wish, wish_path
from holdfast.guard.levels import change_levels
from holdfast.guard.live import change_setting
from holdfast.guard.sending import ORDER_ID, ORDERS
from holdfast.job.files import replace_file
from holdfast.shipment import MOST_ORDERS, Order
from holdfast.values import AnyEvent, Ordered

_ORDER = msgspec.json.Decoder(Order)
_MOST_BYTES = 16 << 10
_LONGEST = 200
"""Letters of what a person wrote that reach the log."""

Undone = Literal["begun", "nothing", "later"]


class _Answer(msgspec.Struct, frozen=True):
    outcome: str
    is_done: bool = True


class Asked:
    """The orders of one run; call ``look`` once a second."""

    def __init__(
        self, run_dir: Path, *, tell: Callable[[AnyEvent], None], undo: Callable[[], Undone]
    ) -> None:
        self._run_dir = run_dir
        self._folder = run_dir / ORDERS
        self._tell = tell
        self._undo = undo
        self._done: set[str] = set()

    def follow_on(self, events: Iterable[AnyEvent]) -> None:
        """Take over from a guard that died: what it has carried out is not done again."""
        self._done |= {event.order for event in events if isinstance(event, Ordered)}

    def look(self) -> None:
        """Carry out what lies there."""
        for file in _oldest_first(self._folder)[:MOST_ORDERS]:
            order = _read(file)
            if order is None:
                _put_aside(file)
            elif order.order_id in self._done or self._answer(order):
                file.unlink(missing_ok=True)

    def _answer(self, order: Order) -> bool:
        """Carry out an order and tell; False: it has to wait."""
        try:
            answer = self._carry_out(order)
        except InputError as error:
            answer = _Answer(str(error), is_done=False)
        if answer is None:
            return False
        self._done.add(order.order_id)
        what = " ".join([order.kind, *order.words.split()])
        self._tell(
            Ordered(
                order=order.order_id,
                what=_plain(what),
                who=_plain(order.who),
                outcome=_plain(answer.outcome),
                is_done=answer.is_done,
            )
        )
        return True

    def _carry_out(self, order: Order) -> _Answer | None:
        match order.kind:
            case "act":
                change_levels(self._run_dir, order.words)
                return _Answer(f"allowed from now on: {order.words.strip() or 'none'}")
            case "set":
                return _Answer(change_setting(self._run_dir, order.words))
            case "profile":
                return self._profile(order)
            case "undo":
                return _UNDONE[self._undo()]

    def _profile(self, order: Order) -> _Answer:
        try:
            replace_file(wish_path(self._run_dir), msgspec.json.encode(Wish(id=order.order_id)))
        except OSError as error:
            raise InputError(f"{wish_path(self._run_dir)} cannot be written: {error.strerror}") from None
        return _Answer("all ranks will be profiled over the same steps")


_UNDONE: dict[Undone, _Answer | None] = {
    "begun": _Answer("all is arranged as it was, and stays so until somebody allows actions again"),
    "nothing": _Answer("nothing is in force", is_done=False),
    "later": None,
}


def _oldest_first(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        found = [(entry.stat(follow_symlinks=False).st_mtime_ns, entry.name) for entry in os.scandir(folder)]
        return [folder / name for _, name in sorted(found) if name.endswith(".json")]
    return []


def _read(file: Path) -> Order | None:
    """Return the order in a file; None if it is none."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
        # It may be anything: a pipe would hold up the guard, and a link could lead anywhere.
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as opened:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            data = opened.read(_MOST_BYTES + 1)
        order = _ORDER.decode(data) if len(data) <= _MOST_BYTES else None
        if order is not None and ORDER_ID.fullmatch(order.order_id) and order.order_id == file.stem:
            return order
    return None


def _put_aside(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.rename(file.with_suffix(".refused"))


def _plain(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())[:_LONGEST]
