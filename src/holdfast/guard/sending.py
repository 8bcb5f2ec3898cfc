"""When things are sent to a server: all the time, by a thread of the guard; at the end; and later, by hand.

The guard neither waits for that thread nor hears of its troubles.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from holdfast.errors import InputError
from holdfast.guard.posting import TIMEOUT_S, Poster
from holdfast.guard.say import Say
from holdfast.guard.sender import LONGEST_S, Sender
from holdfast.guard.spool import Spool, describe_run
from holdfast.job.files import replace_file
from holdfast.shipment import Order, Run

ORDERS = "orders"
"""Folder of the run directory in which orders lie until they are carried out."""
ORDER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LOG = re.compile(r"events(?:\.node([0-9]+))?\.jsonl")
_MOST_WAITS = 10
"""For a busy server, when a person waits too."""


class Sending:
    """The guard's thread that sends; orders are laid into the run directory."""

    def __init__(self, run_dir: Path, poster: Poster, *, node: int, key: str, say: Say) -> None:
        _warn_if_open(poster, say)
        self._run_dir = run_dir
        self._say = say
        self._sender = make_sender(run_dir, poster, node=node, key=key, say=say)
        self._sender.on_orders = self._lay_down
        self._stop = threading.Event()
        self._until_s = 0.0
        self._thread = threading.Thread(target=self._work, name="sending", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, *, flush_s: float = 0.0) -> None:
        """End, after sending what is left for so many seconds; a server that hangs is not waited for."""
        self._until_s = time.monotonic() + flush_s
        self._stop.set()
        self._thread.join(flush_s + 0.2)

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                pause_s = self._sender.turn(time.monotonic())
            except Exception as error:  # Whatever it is, the guard has other things to do.
                self._say.once("sending", f"nothing can be sent to the server: {error!r}")
                pause_s = LONGEST_S
            self._stop.wait(pause_s)
        flush(self._sender, until_s=self._until_s)
        self._sender.close()

    def _lay_down(self, orders: Sequence[Order]) -> None:
        for order in orders:
            lay_down(self._run_dir, order)


def make_sender(run_dir: Path, poster: Poster, *, node: int, key: str, say: Say) -> Sender:
    """Return what sends one node's part of a run directory; an empty key is made from its name."""
    spool = Spool(run_dir, node=node, server=poster.server.url)
    return Sender(spool, poster, _describer(run_dir, key), node=node, say=say)


def lay_down(run_dir: Path, order: Order) -> None:
    """Put an order where the guard of node 0 looks; one whose id is no fit name for a file is left out."""
    if not ORDER_ID.fullmatch(order.order_id):
        return
    folder = run_dir / ORDERS
    file = folder / f"{order.order_id}.json"
    try:
        folder.mkdir(exist_ok=True)
        if not file.exists():
            replace_file(file, msgspec.json.encode(order))
    except OSError:  # It comes again with the next receipt.
        return


def flush(sender: Sender, *, until_s: float) -> bool:
    """Send what is left, until a time, and say whether all was; the first trouble ends it."""
    while (left_s := until_s - time.monotonic()) > 0:
        try:
            sender.turn(time.monotonic(), timeout_s=min(TIMEOUT_S, left_s))
        except Exception:  # It stays in the run directory.
            return False
        if sender.is_done or sender.trouble is not None:
            return sender.is_done
    return False


def flush_within(run_dir: Path, poster: Poster, *, node: int, key: str, limit_s: float) -> None:
    """Send the last lines of a node whose guard has ended; return in time, whatever the server does."""
    deaf = Say(put=lambda fd, data: None)  # The guard has said what there is to say.
    sender = make_sender(run_dir, poster, node=node, key=key, say=deaf)

    def work() -> None:
        flush(sender, until_s=time.monotonic() + limit_s)
        sender.close()

    thread = threading.Thread(target=work, name="flushing", daemon=True)
    thread.start()
    thread.join(limit_s + 0.2)


def _describer(run_dir: Path, key: str) -> Callable[[], Run]:
    known: list[Run] = []

    def describe() -> Run:
        run = known[0] if known else describe_run(run_dir, key)
        if run.started_at and not known:  # Node 0 may not have written its file yet.
            known.append(run)
        return run

    return describe


def _warn_if_open(poster: Poster, say: Say) -> None:
    server = poster.server
    if poster.has_token and not server.is_encrypted and not server.is_here:
        say.once("server open", f"{server.url} is not encrypted: whoever is on the way can read the token")


# --- later ------------------------------------------------------------------------------------


class Shipped(msgspec.Struct, frozen=True, kw_only=True):
    """What was sent of one run directory."""

    run_dir: str
    key: str
    lines: int
    """Events and rows that the server has taken."""
    refused: int
    """Those that it will never take."""
    trouble: str = ""
    """Why not all of it was sent; empty where it was."""


def ship(
    run_dirs: Sequence[Path], poster: Poster, *, say: Say, on_lines: Callable[[int], None] | None = None
) -> list[Shipped]:
    """Send what is left of run directories, of all nodes that wrote there; stop at the first trouble."""
    nodes = {run_dir: nodes_of(run_dir) for run_dir in run_dirs}  # Nothing is sent if one of them is none.
    _warn_if_open(poster, say)
    shipped: list[Shipped] = []
    for run_dir in run_dirs:
        shipped.append(_ship_one(run_dir, nodes[run_dir], poster, say, on_lines or (lambda lines: None)))
        if shipped[-1].trouble:
            break
    return shipped


def nodes_of(run_dir: Path) -> list[int]:
    """Return which nodes have an event log in a run directory; InputError if none has."""
    found = [_LOG.fullmatch(file.name) for file in run_dir.glob("events*.jsonl")]
    nodes = sorted(int(match.group(1) or 0) for match in found if match is not None)
    if not nodes:
        raise InputError(f"{run_dir}: no events.jsonl in it, expected a run directory")
    return nodes


def _ship_one(
    run_dir: Path, nodes: Sequence[int], poster: Poster, say: Say, on_lines: Callable[[int], None]
) -> Shipped:
    lines = refused = 0
    trouble = ""
    for node in nodes:
        sender = make_sender(run_dir, poster, node=node, key="", say=say)
        trouble = _send_all(sender, on_lines)
        lines, refused = lines + sender.taken, refused + sender.refused
        if trouble:
            break
    key = describe_run(run_dir).key
    return Shipped(run_dir=str(run_dir), key=key, lines=lines, refused=refused, trouble=trouble)


def _send_all(sender: Sender, on_lines: Callable[[int], None]) -> str:
    """Return why not all was sent; empty where it was."""
    waits = 0
    while True:
        before = sender.taken
        pause_s = sender.turn(time.monotonic())
        on_lines(sender.taken - before)
        if sender.is_done:
            return ""
        if sender.trouble is not None:
            waits += 1
            if sender.trouble.failure != "busy" or waits > _MOST_WAITS:
                return sender.trouble.words
        time.sleep(pause_s)
