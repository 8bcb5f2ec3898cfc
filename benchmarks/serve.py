"""The control room under load and under fire: what is lost, what is doubled, how long pages take.

Real senders (the guard's own, each with a run directory), a real ``holdfast serve``, SQLite and PostgreSQL.
What is in the store is counted, by event id, against what the senders have written to disk. Parts: ``load``
(200 jobs, 2,000 events a second), ``top`` (the highest rate held), ``kills`` (the server, kill -9 in
mid-write), ``full`` (a disk that is full and then is not; needs root), ``restarts`` (of PostgreSQL), ``many``
(the page of one job with 10,000 workers).
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import common
from serving import manyworkers
from serving.server import Crowd, Load, Looker, Served, compare

JOBS = 200
PAGES = ["/", "/runs/job-000", "/runs/job-101", "/incidents"]
STORES = ("sqlite", "postgres")
_HELD_S = 3.0
"""A rate is held if all is acknowledged so soon after the last event; senders wait up to a second."""


def main() -> None:
    """Print the parts that were asked for."""
    made = common.parser(__doc__)
    made.add_argument("--only", action="append", choices=list(PARTS))
    made.add_argument("--store", action="append", choices=STORES)
    made.add_argument("--seconds", type=float, default=300.0, help="of load")
    made.add_argument("--rate", type=float, default=2000.0, help="events a second")
    made.add_argument(
        "--calm", action="store_true", help="load without incidents, which the server remembers"
    )
    made.add_argument("--kills", type=int, default=20)
    common.run_parts(PARTS, made.parse_args())


def load(options: argparse.Namespace) -> common.Part:
    """Measure the usual load."""
    rows = []
    for kind in options.store or STORES:
        with served(kind) as (folder, server):
            row, _ = _burden(folder, server, Load(JOBS, options.rate, options.seconds, options.calm))
            rows.append({"store": kind, **row})
    return common.Part(rows, _notes(options.rate, is_calm=options.calm), is_good=all(map(_is_whole, rows)))


def top(options: argparse.Namespace) -> common.Part:
    """Find the highest rate that is held, by doubling it."""
    rows = []
    for kind in options.store or STORES:
        rate = options.rate
        while True:
            with served(kind) as (folder, server):
                row, drained_s = _burden(folder, server, Load(JOBS, rate, 30.0))
            rows.append({"store": kind, "rate": rate, **row, "held": drained_s <= _HELD_S})
            if drained_s > _HELD_S:
                break
            rate *= 1.5
    return common.Part(rows, _notes(None), is_good=all(map(_is_whole, rows)))


def kills(options: argparse.Namespace) -> common.Part:
    """Kill the server again and again, at moments that fall into writes."""
    chance = random.Random(options.seed)
    rows = []
    for kind in options.store or STORES:
        with served(kind) as (folder, server):

            def kill(server: Served = server) -> None:
                time.sleep(chance.uniform(1.0, 3.0))
                server.kill()
                time.sleep(chance.uniform(0.0, 0.5))
                server.start()

            rows.append(
                {"store": kind, "kills": options.kills, **_attack(folder, server, kill, options.kills)}
            )
    return common.Part(rows, ["1,000 events a second, 40 jobs"], is_good=all(map(_is_whole, rows)))


def full(options: argparse.Namespace) -> common.Part:
    """Let the disk of a SQLite store be full for a while."""
    with tempfile.TemporaryDirectory() as name, _small_disk(Path(name) / "disk") as disk:
        folder = Path(name)
        with ExitStack() as stack:
            server = Served(folder, str(disk / "store.sqlite"))
            stack.callback(server.close)
            looks: list[int] = []

            def grow() -> None:
                time.sleep(20.0)
                looks.append(server.get("/")[0])
                subprocess.run(["mount", "-o", "remount,size=1g", str(disk)], check=True)

            row = _attack(folder, server, grow, 1)
        refused = server.said.count("full")
    row = {"store": "sqlite", **row, "page while full": looks[0], "said": refused}
    return common.Part([row], ["a disk of 4 MB, which has room again after 20 s"], is_good=_is_whole(row))


def restarts(options: argparse.Namespace) -> common.Part:
    """Restart PostgreSQL under load."""
    from serving.postgres import start_postgres

    with tempfile.TemporaryDirectory() as name, start_postgres(Path(name) / "pg") as postgres:
        server = Served(Path(name), postgres.url)
        try:

            def restart() -> None:
                time.sleep(3.0)
                postgres.stop()
                time.sleep(1.0)
                postgres.start()

            row = _attack(Path(name), server, restart, 5)
        finally:
            server.close()
    return common.Part([{"restarts": 5, **row}], ["1,000 events a second, 40 jobs"], is_good=_is_whole(row))


# --- how --------------------------------------------------------------------------------------


@contextmanager
def served(kind: str) -> Iterator[tuple[Path, Served]]:
    """A server with an empty store."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        store = str(folder / "store.sqlite")
        if kind == "postgres":
            from serving.postgres import start_postgres

            store = stack.enter_context(start_postgres(folder / "pg")).url
        server = Served(folder, store)
        stack.callback(server.close)
        yield folder, server


def _burden(folder: Path, server: Served, load: Load) -> tuple[dict[str, Any], float]:
    """Let jobs send and people look; return what came of it, and how late the last event was."""
    crowd = Crowd(folder, server, load)
    time.sleep(5.0)  # Until all of them are there to be looked at.
    looker = Looker(server, PAGES)
    looker.start()
    memory = []
    while not crowd.is_over:
        memory.append(server.memory_mb)
        time.sleep(1.0)
    looker.stop()
    drained_s = crowd.drained_s()
    quarter = max(1, len(memory) // 4)
    took = [seconds for each in looker.took.values() for seconds in each]
    row = {
        **compare(server.store, crowd.written()),
        "page p50 ms": 1000 * statistics.median(took),
        "page p95 ms": _p95_ms(took),
        "p95 of each": ", ".join(f"{path} {_p95_ms(each):.0f}" for path, each in looker.took.items()),
        "pages": len(took),
        "page failures": looker.failures,
        "drained s": drained_s,
        "memory MB": f"{statistics.median(memory[quarter : 2 * quarter]):.0f} to "
        f"{statistics.median(memory[-quarter:]):.0f}",
    }
    return row, drained_s


def _p95_ms(seconds: list[float]) -> float:
    return 1000 * statistics.quantiles(seconds, n=20)[-1]


def _attack(folder: Path, server: Served, attack: Callable[[], None], times: int) -> dict[str, Any]:
    """Do something bad to it again and again while jobs send; return what was lost."""
    crowd = Crowd(folder, server, Load(40, 1000.0, 4.0 * times + 15.0))
    for _ in range(times):
        attack()
    drained_s = crowd.drained_s()
    return {**compare(server.store, crowd.written()), "drained s": drained_s}


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=False)


def _is_whole(row: dict[str, Any]) -> bool:
    return not any(row[name] for name in ("lost", "doubled", "foreign"))


def _notes(rate: float | None, *, is_calm: bool = False) -> list[str]:
    how = f"{rate:g} events a second" if rate is not None else "30 s at each rate"
    return [
        f"{JOBS} jobs, {how}, and a summary row of each a second; senders, server, database on one machine",
        f"{'no event' if is_calm else 'one in 100 events'} opens or closes an incident of its job",
        "one reader, four pages a second at most",
        "memory of the server: second to last quarter",
    ]


PARTS: dict[str, Callable[[argparse.Namespace], common.Part]] = {
    "load": load,
    "top": top,
    "kills": kills,
    "full": full,
    "restarts": restarts,
    "many": manyworkers.measure,
}

if __name__ == "__main__":
    main()
