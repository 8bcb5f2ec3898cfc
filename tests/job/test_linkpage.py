"""The page of links: a reader gets a whole snapshot of a worker's connections, or none."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.detect.links import LinkSnapshot, SocketCounters
from holdfast.job.linkpage import MAGIC, ROWS, SIZE_BYTES, LinkPage, LinkPageReader, links_path
from holdfast.job.sockets import Counters, network_name

SECOND_NS = 1_000_000_000
WRITER = """
import socket, sys
from pathlib import Path
from holdfast.job.linkpage import LinkPage
server = socket.create_server(("127.0.0.1", 0))
clients = [socket.create_connection(server.getsockname()) for _ in range(20)]
page = LinkPage(Path(sys.argv[1]), rank=0)
for number in range(1, 3001):
    page.update(number * 10**9)
    if number == 1:
        print("ready", flush=True)
"""


@pytest.fixture
def page(tmp_path: Path) -> LinkPage:
    """The page of rank 5."""
    return LinkPage(links_path(tmp_path, 5), rank=5, attempt=2)


def _reader(folder: Path, rank: int = 5) -> LinkPageReader[LinkSnapshot]:
    return LinkPageReader(links_path(folder, rank), LinkSnapshot)


@pytest.fixture
def clients() -> Iterator[list[socket.socket]]:
    """More connections than a page has room for, counting both ends of each."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        found = []
        for _ in range(ROWS // 2 + 6):
            found.append(stack.enter_context(socket.create_connection(server.getsockname())))
            stack.enter_context(server.accept()[0])
        yield found


def test_the_fields_of_the_counters_are_those_of_the_value() -> None:
    """What the page tells has a place in the value that it is returned as."""
    assert set(SocketCounters.__struct_fields__) == {"local", "peer", *Counters._fields}


def test_a_page_before_its_first_snapshot_tells_nothing(tmp_path: Path, page: LinkPage) -> None:
    """It says whose it is, though."""
    reader = _reader(tmp_path)
    assert reader.read() is None
    assert (reader.rank, reader.pid, reader.attempt) == (5, os.getpid(), 2)


def test_a_snapshot_comes_back_whole(tmp_path: Path, page: LinkPage) -> None:
    """Who, when, where, after how many steps, and each connection with its counters."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0],
    ):
        local, peer = ("{}:{}".format(*name) for name in (client.getsockname(), client.getpeername()))
        page.update(7 * SECOND_NS)
        snapshot = _reader(tmp_path).read()
    assert snapshot is not None
    assert (snapshot.rank, snapshot.pid, snapshot.attempt) == (5, os.getpid(), 2)
    assert (snapshot.at_s, snapshot.steps, snapshot.left_out) == (7.0, 1, 0)
    assert snapshot.host == network_name()
    assert snapshot.delayed_acks is not None
    ends = {(each.local, each.peer): each for each in snapshot.sockets}
    assert ends[local, peer].bytes_received == 0
    assert ends[peer, local].bytes_acked == 0


def test_a_snapshot_is_written_at_most_once_a_second(tmp_path: Path, page: LinkPage) -> None:
    """Every call counts as a step, but only one a second as a snapshot."""
    reader = _reader(tmp_path)
    seen = []
    for tenths in range(25):
        page.update(tenths * SECOND_NS // 10)
        snapshot = reader.read()
        assert snapshot is not None
        seen.append((snapshot.at_s, snapshot.steps))
    assert sorted(set(seen)) == [(0.0, 1), (1.0, 11), (2.0, 21)]


def test_a_full_page_keeps_the_connections_that_moved_most(
    tmp_path: Path, page: LinkPage, clients: list[socket.socket]
) -> None:
    """Those that found no room are counted; the last to be opened is kept if it moved something."""
    clients[-1].sendall(b"x" * 1000)
    local = "{}:{}".format(*clients[-1].getsockname())
    page.update(0)
    snapshot = _reader(tmp_path).read()
    assert snapshot is not None
    assert len(snapshot.sockets) == ROWS
    assert snapshot.left_out >= 12
    assert {each.local for each in snapshot.sockets} >= {local}
    assert {each.peer for each in snapshot.sockets} >= {local}


def test_a_snapshot_that_is_being_written_is_not_read(tmp_path: Path, page: LinkPage) -> None:
    """A worker stopped in the middle of a write leaves none; its next one is whole again."""
    reader = _reader(tmp_path)
    page.update(0)
    assert reader.read() is not None
    with links_path(tmp_path, 5).open("r+b") as file:
        file.seek(4 * 8)
        file.write(struct.pack("=q", 2))
    assert reader.read() is None
    page.update(SECOND_NS)
    snapshot = reader.read()
    assert snapshot is not None
    assert snapshot.at_s == 1.0


def test_a_new_page_replaces_the_old_one_whole(tmp_path: Path, page: LinkPage) -> None:
    """The old reader keeps what it had; a new one sees the new attempt; no other file is left."""
    page.update(0)
    old = _reader(tmp_path)
    LinkPage(links_path(tmp_path, 5), rank=5, attempt=3)
    new = _reader(tmp_path)
    assert old.read() is not None
    assert (new.read(), new.attempt, new.inode != old.inode) == (None, 3, True)
    assert list(tmp_path.iterdir()) == [links_path(tmp_path, 5)]


def test_a_page_is_private(tmp_path: Path, page: LinkPage) -> None:
    """Nobody else may read or write it."""
    assert links_path(tmp_path, 5).stat().st_mode & 0o777 == 0o600


HEADER = "=11q"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * SIZE_BYTES,
        pytest.param(struct.pack(HEADER, MAGIC, 0, 1, *[0] * 8), id="cut before the rows"),
        pytest.param(struct.pack(HEADER, MAGIC, 0, 0, *[0] * 8).ljust(SIZE_BYTES, b"\0"), id="no process"),
        pytest.param(struct.pack(HEADER, MAGIC, -1, 1, *[0] * 8).ljust(SIZE_BYTES, b"\0"), id="no rank"),
        pytest.param(
            struct.pack(HEADER, MAGIC, 0, 1, 0, 1, 1, 0, ROWS + 1, 0, 0, 0).ljust(SIZE_BYTES, b"\0"),
            id="more rows than there are",
        ),
        pytest.param(
            struct.pack(HEADER, MAGIC, 0, 1, 0, 1, 1, 0, 1, 0, 0, 0).ljust(SIZE_BYTES, b"\xff"),
            id="names that are no text",
        ),
    ],
)
def test_a_file_that_is_no_page_of_this_version_is_refused(tmp_path: Path, content: bytes) -> None:
    """Empty, cut, foreign and broken files end in a ValueError."""
    links_path(tmp_path, 0).write_bytes(content)
    with pytest.raises(ValueError):  # noqa: PT011 - one kind of error is the whole point.
        _reader(tmp_path, 0).read()


def test_where_no_page_can_be_made_training_goes_on(tmp_path: Path) -> None:
    """The page writes to nobody."""
    page = LinkPage(links_path(tmp_path / "gone", 0), rank=0)
    page.update(0)
    assert (page.is_shared, page.errors) == (False, 0)


def test_a_full_file_system_has_no_page_and_keeps_no_piece(small_disk: Path) -> None:
    """The writer learns of it at the start, not by SIGBUS in the middle of training."""
    assert not LinkPage(links_path(small_disk, 0), rank=0).is_shared
    assert list(small_disk.iterdir()) == []


def test_what_goes_wrong_is_counted_and_does_not_reach_the_loop(tmp_path: Path) -> None:
    """A rank whose time does not fit into the page goes on; the snapshot before stays."""
    page = LinkPage(links_path(tmp_path, 0), rank=0)
    page.update(0)
    page.update(2**63)
    snapshot = _reader(tmp_path, 0).read()
    assert snapshot is not None
    assert (page.errors, snapshot.at_s) == (1, 0.0)


@pytest.mark.processes
def test_a_forked_child_leaves_the_page_to_its_parent(tmp_path: Path, page: LinkPage) -> None:
    """It has the hooks of its parent, but not its connections."""
    page.update(0)
    pid = os.fork()
    if pid == 0:
        page.update(5 * SECOND_NS)
        os._exit(page.errors)
    assert os.waitpid(pid, 0)[1] == 0
    snapshot = _reader(tmp_path).read()
    assert snapshot is not None
    assert snapshot.at_s == 0.0


@pytest.mark.processes
def test_a_reader_beside_a_fast_writer_sees_only_whole_snapshots_in_order(tmp_path: Path) -> None:
    """All parts of a snapshot were written at once, and none is older than the one before."""
    path = links_path(tmp_path, 0)
    seen = []
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        reader = _reader(tmp_path, 0)
        while process.poll() is None:
            snapshot = reader.read()
            if snapshot is not None:
                seen.append(snapshot)
    assert process.returncode == 0
    assert [each for each in seen if each.at_s != each.steps or len(each.sockets) != 20] == []
    assert [each.steps for each in seen] == sorted(each.steps for each in seen)
    last = reader.read()
    assert last is not None
    assert last.steps == 3000
