"""What is left when the world fails: a full disk, a killed server, a database that restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from holdfast.errors import InputError, StoreError
from holdfast.serve.store import Store
from serving.postgres import PASSWORD, Postgres
from store.storecases import RUN, ids, line, row, ship

ROUNDS = 4
PATIENCE_S = 60.0

TAKER = """
import sys
from holdfast.serve.store import Store
from store.storecases import line, row, ship

store = Store.open(sys.argv[1])
number = int(sys.argv[2])
while True:
    batch = [
        ship(
            [line(f"{number}.{node}.{i}", node=node) for i in range(20)],
            [row(number / 1000, {node: 1.0}, node=node)],
            node=node,
        )
        for node in range(3)
    ]
    assert [item.taken for item in store.take(batch)] == [21, 21, 21]
    print(number, flush=True)
    number += 1
"""
"""Takes one batch after the other, and says which were taken."""


@pytest.mark.processes
def test_a_server_killed_at_any_moment_has_all_it_said_it_has(url: str) -> None:
    """And of what it was just taking all or nothing."""
    said, number = [], 0
    for lap in range(ROUNDS):
        spoken = _take_and_die(url, number, after=2 + lap)
        said += spoken
        store = Store.open(url)
        kept = ids(store)
        batches = {int(event_id.split(".")[0]) for event_id in kept}
        assert len(kept) == len(set(kept)) == 60 * len(batches)
        assert set(said) <= batches
        run = store.run(RUN.key)
        assert run is not None
        assert (run.events, store.size().rows) == (len(kept), 3 * len(batches))
        store.close()
        number = max(batches) + 1
    assert len(said) >= ROUNDS


def _take_and_die(url: str, number: int, *, after: int) -> list[int]:
    """Kill it in the midst of a batch, when it has taken some; return which it said it had taken."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(TAKER), url, str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(after)]
        time.sleep(0.003 * after)  # Somewhere in the next one; where, does not matter.
        process.send_signal(signal.SIGKILL)
        said += [int(word) for word in process.stdout.read().split()]
    return said


@pytest.mark.root
def test_a_full_disk_keeps_nothing_by_half(tmp_path: Path) -> None:
    """What was there can be read, and with room there is again a store that takes."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    try:
        _fill_the_disk(disk)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _fill_the_disk(disk: Path) -> None:
    store = Store.open(str(disk / "store.db"))
    store.take([ship([line("a")], [row(1, {0: 1.0})])])
    ballast = disk / "ballast"
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(bytes(4 << 20))
    large = [ship([line(f"{'x' * 150}{i}") for i in range(500)])]
    for _ in range(2):
        with pytest.raises(StoreError, match=r"full|disk I/O error"):
            store.take(large)
    assert ids(store) == ["a"]
    ballast.unlink()
    assert store.take(large)[0].taken == 500
    assert len(ids(store)) == 501
    store.close()


def test_a_database_that_restarts_costs_one_call_at_most(postgres: Postgres) -> None:
    """While it is away every call says so in one line; then it goes on where it was."""
    store = Store.open(postgres.make_schema("restarting"))
    store.take([ship([line("a")])])
    postgres.stop()
    try:
        for _ in range(2):
            with pytest.raises(StoreError) as caught:
                store.take([ship([line("b")])])
            assert "\n" not in str(caught.value)
            assert PASSWORD not in str(caught.value)
        with pytest.raises(StoreError):
            store.runs()
        with pytest.raises(InputError):
            Store.open(postgres.url)
    finally:
        postgres.start()
    assert store.take([ship([line("a"), line("b")])])[0].taken == 1
    assert ids(store) == ["a", "b"]
    store.close()


def test_a_connection_that_is_cut_is_made_again(postgres: Postgres) -> None:
    """Nobody has to restart the server for it."""
    store = Store.open(postgres.make_schema("cut"))
    store.take([ship([line("a")])])
    postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'")
    assert store.take([ship([line("b")])])[0].taken == 1
    store.close()
