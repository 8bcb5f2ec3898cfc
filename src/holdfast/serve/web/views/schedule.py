"""The schedule that a pipeline job follows, drawn: planned anew from places and speeds, as its hub did.

Plans are made and drawn by one thread and kept, so that no page waits for one for long.
"""

from __future__ import annotations

import concurrent.futures
import re
import threading
from collections import OrderedDict
from typing import NamedTuple

from markupsafe import Markup

from holdfast.errors import HoldfastError
from holdfast.incidents.values import RunView
from holdfast.plan.choose import choose
from holdfast.plan.problem import Problem
from holdfast.plan.timing import time_schedule
from holdfast.serve.gantt import Panel, draw

MOST_OPERATIONS = 400_000
"""Of a schedule that is drawn; planning a larger one would keep the server busy."""
MOST_BYTES = 150_000
"""Of a picture that is part of the page; a larger one is fetched when it is asked for."""
_MOST_KEPT = 64
_STYLE = re.compile(r"<style>.*?</style>\s*", re.DOTALL)


class Drawn(NamedTuple):
    """A picture, or why there is none."""

    svg: Markup = Markup("")
    words: str = ""
    is_ready: bool = True


def problem_of(view: RunView) -> Problem | None:
    """Return what the run's hub had to plan; None: it is no pipeline, or nobody has said its shape."""
    if view.pp < 2 or view.microbatches < 1:
        return None
    held = {worker.place: worker.speed for worker in view.workers if worker.place is not None}
    if not held:
        return None
    dp = -(-max(max(held) + 1, view.world_size) // view.pp)
    if dp * view.pp > MOST_OPERATIONS:  # A log may say anything.
        return None
    # Some may have no place because they are dead: their places are there, and nobody works at them.
    speeds = tuple(
        tuple(min(1.0, held.get(line * view.pp + stage, 0.0)) for stage in range(view.pp))
        for line in range(dp)
    )
    try:
        return Problem(dp=dp, pp=view.pp, microbatches=view.microbatches, speeds=speeds)
    except HoldfastError:
        return None


def draw_schedule(problem: Problem) -> Drawn:
    """Plan and draw."""
    if problem.dp * problem.pp * problem.microbatches * 3 > MOST_OPERATIONS:
        return Drawn(words="the schedule has too many operations to be drawn")
    try:
        schedule = choose(problem, fault_free="1f1b")
        timed = time_schedule(problem, schedule)
    except HoldfastError as error:
        return Drawn(words=f"no schedule: {error}")
    title = f"{problem.dp} pipelines x {problem.pp} stages x {problem.microbatches} micro-batches"
    picture = draw([Panel(title=title, problem=problem, timed=timed)])
    # Colours come from the page's own stylesheet: it follows the reader's choice of light or dark.
    return Drawn(Markup(_STYLE.sub("", picture)))


class Schedules:
    """Pictures of schedules by what was planned."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="holdfast-draw")
        self._kept: OrderedDict[Problem, concurrent.futures.Future[Drawn]] = OrderedDict()

    def find(self, problem: Problem, *, wait_s: float) -> Drawn:
        """Return the picture, or that it is not ready yet."""
        with self._lock:
            future = self._kept.get(problem)
            if future is None:
                future = self._kept[problem] = self._pool.submit(draw_schedule, problem)
            self._kept.move_to_end(problem)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)[1].cancel()
        try:
            return future.result(timeout=wait_s)
        except TimeoutError:
            return Drawn(words="the schedule is being drawn", is_ready=False)

    def close(self) -> None:
        """Let the thread go."""
        self._pool.shutdown(wait=False, cancel_futures=True)
