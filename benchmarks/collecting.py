"""What the controller of a large job costs: CPU seconds per second of the job, and where they go.

Nodes that are not there send real frames through real connections of this machine, from a few processes; one
process has the real ``Collector``, ``Inspector`` and ``SilenceWatch``. A second of the job is over when all
of it was taken in, however long that takes: what is counted is CPU time, so that other work on the machine
matters little. The job makes one step a second; with ``--slow`` one rank is slow in the last third
of the time, and has to be named.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

import common
from collected.sender import Spread, send_all
from holdfast.guard.batches import Batch
from holdfast.guard.collecting import Collector
from holdfast.guard.duties import expect_many_nodes
from holdfast.guard.inspector import Inspector
from holdfast.guard.say import Say
from holdfast.guard.silence import SilenceWatch
from holdfast.guard.sockets import listen
from holdfast.values import AnyEvent, SuspectsNamed


class Meter:
    """CPU time of the guard's loop, by what it was spent on."""

    def __init__(self) -> None:
        self.spent_s: dict[str, list[float]] = {}

    @contextlib.contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count what is spent in the block."""
        started_s = time.thread_time()
        yield
        self.spent_s.setdefault(what, []).append(time.thread_time() - started_s)


class Controller:
    """What node 0's guard does with the batches of others."""

    def __init__(self, token: str, folder: Path) -> None:
        expect_many_nodes()
        self.now_s = 0.0
        self.told: list[AnyEvent] = []
        listener = listen(is_local=True)
        self.port: int = listener.getsockname()[1]
        self.collector = Collector(listener, token, clock=lambda: self.now_s)
        ask, quiet = self.collector.ask, Say(os.open(os.devnull, os.O_WRONLY))
        self._inspector = Inspector(tell=self.told.append, say=quiet, ask=ask)
        self._silence = SilenceWatch(dumps=folder, tell=self.told.append, say=quiet, ask=ask)

    def second(self, nodes: int, meter: Meter) -> None:
        """Take in a second of all nodes, and judge it."""
        batches: list[Batch] = []
        while len(batches) < nodes:
            with meter.on("taking"):
                batches += self.collector.take()
            time.sleep(0.2)  # Looking costs too, and a guard looks once a second.
        with meter.on("slowdowns"):
            self._inspector.inspect(batches, self.now_s)
        with meter.on("silence"):
            self._silence.look(batches, self.now_s)


def main() -> None:
    """Run the job and print what it cost."""
    parser = common.parser(__doc__)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--ranks", type=int, default=8, help="per node")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--slow", action="store_true", help="slow one rank down, so that it is named")
    parser.add_argument("--senders", type=int, default=2)
    options = parser.parse_args()
    token = secrets.token_hex()
    with tempfile.TemporaryDirectory() as folder:
        controller = Controller(token, Path(folder))

        def spread(nodes: range) -> Spread:
            return Spread(
                nodes=nodes,
                ranks=options.ranks,
                world=options.nodes * options.ranks,
                slow_node=options.nodes // 2,
                slow_from=2 * options.seconds // 3 if options.slow else options.seconds + 1,
                port=controller.port,
                token=token,
            )

        with senders(spread, options) as pipes:
            report(options, controller, *run(options, controller, pipes))


@contextlib.contextmanager
def senders(spread: Callable[[range], Spread], options: Any) -> Iterator[list[Connection]]:
    """Start the processes, and have a connection to each; they are gone at the end of the block."""
    context = multiprocessing.get_context("spawn")
    started, pipes = [], []
    for number in range(options.senders):
        mine, theirs = context.Pipe()
        nodes = range(number, options.nodes, options.senders)
        process = context.Process(target=send_all, args=(spread(nodes), theirs), daemon=True)
        process.start()
        started.append(process)
        pipes.append(mine)
    try:
        for pipe in pipes:
            pipe.recv()
        yield pipes
    finally:
        for process in started:
            process.kill()
            process.join()


def run(options: Any, controller: Controller, pipes: list[Connection]) -> tuple[Meter, list[float], int]:
    """Let the seconds of the job pass; return what each cost, and how many bytes came in."""
    meter, costs = Meter(), []
    with common.progress() as bar:
        for second in bar.track(range(1, options.seconds + 1), description="seconds of the job"):
            controller.now_s = float(second)
            before_s = time.process_time()
            for pipe in pipes:
                pipe.send((second, controller.now_s))
            controller.second(options.nodes, meter)
            costs.append(time.process_time() - before_s)
    for pipe in pipes:
        pipe.send(None)
    return meter, costs, sum(pipe.recv() for pipe in pipes)


def report(options: Any, controller: Controller, meter: Meter, costs: list[float], sent_bytes: int) -> None:
    """Print the table."""
    parts = {what: sum(spent) for what, spent in meter.spent_s.items()}
    receiving_s = sum(costs) - sum(parts.values())
    named = [event for event in controller.told if isinstance(event, SuspectsNamed) and event.since_step]
    # In the first second all tell their groups; after the change all are asked where they spend their time.
    usual = sorted(costs)[len(costs) // 2]
    row = {
        "nodes": options.nodes,
        "ranks": options.nodes * options.ranks,
        "CPU s per s": sum(costs) / len(costs),
        "median second": usual,
        "first second": costs[0],
        "worst later": max(costs[1:]),
        "receiving": receiving_s / len(costs),
        **{what: spent / len(costs) for what, spent in parts.items()},
        "KB per node": sent_bytes / options.nodes / options.seconds / 1000,
        "memory GB": psutil.Process().memory_info().rss / 1e9,
    }
    notes = [
        "receiving (with decoding), taking, slowdowns, silence: parts of the CPU seconds per second",
        f"after {options.seconds} s; named {[each.ranks for event in named for each in event.suspects]}, "
        f"expected {[[options.nodes // 2 * options.ranks]] if options.slow else []}",
    ]
    common.show("the controller of a large job", [row], notes, as_json=options.json)


if __name__ == "__main__":
    main()
